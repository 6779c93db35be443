"""C programs that call exported ones, for machines that this process is not."""

import subprocess
import sys

import numpy as np

MAIN = """\
#include <stdio.h>
#include <stdlib.h>
#include "@NAME.h"

@ARRAYS

int main(void) {
  static @NAME_model model;
  void *memory = malloc(@SIZE);
  int code = @NAME_init(&model, memory, @SIZE);
  if (code) { fprintf(stderr, "init: %s", @NAME_message(code)); return 1; }
  for (int k = 0; k < @CALLS; k++) {
    code = @NAME_@ENTRY(@ARGUMENTS);
    if (code) { fprintf(stderr, "run: %s", @NAME_message(code)); return 1; }
    @WRITES
  }
  free(memory);
  return 0;
}
"""


def main_of(name, inputs, outputs, *, size=1 << 23, entry="run", calls=1):
    """The C source that calls a program and writes its results to the output."""
    arrays, arguments, writes = [], ["&model"], []
    for k, array in enumerate((*inputs, *outputs)):
        data = ",".join(map(str, array.tobytes()))
        arrays.append(f"_Alignas(64) static unsigned char a{k}[] = {{{data}}};")
        shape = ",".join(map(str, array.shape))
        arguments.append(f"(void *)a{k}")
        if array.ndim:
            arguments.append(f"(int64_t[]){{{shape}}}")
        if k >= len(inputs):
            writes.append(f"fwrite(a{k}, 1, sizeof a{k}, stdout);")
    text = MAIN
    for key, value in {
        "NAME": name, "ENTRY": entry, "SIZE": size, "CALLS": calls,
        "ARRAYS": "\n".join(arrays), "ARGUMENTS": ", ".join(arguments),
        "WRITES": " ".join(writes),
    }.items():  # fmt: skip
        text = text.replace(f"@{key}", str(value))
    return text


def zig(*arguments, cwd):
    command = [sys.executable, "-m", "ziglang", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def results_of(command, outputs, *, cwd, calls=1):
    """The results that a program writes, for each of its calls."""
    done = subprocess.run(command, cwd=cwd, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found, at = [], 0
    for _ in range(calls):
        results = []
        for like in outputs:
            data = done.stdout[at : at + like.nbytes]
            results.append(np.frombuffer(data, like.dtype).reshape(like.shape))
            at += like.nbytes
        found.append(results)
    assert at == len(done.stdout)
    return found
