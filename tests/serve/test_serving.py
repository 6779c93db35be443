"""Programs over HTTP: right answers, clear refusals, and clients that misbehave."""

import concurrent.futures
import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from http_server import Client, running, until

import weft
from weft.errors import ArgumentError
from weft.serve import Cascade, Limits, Remote, RemoteFailed, Server, confidence, served
from weft.serve.wire import RAW


def expected(net, x):
    with weft.no_grad():
        return net(weft.tensor(x, dtype=weft.float32)).numpy()


def rows(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 2, 3)).round(3)


def test_json(client, net):
    x = rows(4)
    for inputs in (x.tolist(), {"input": x.tolist()}):
        status, found, head = client.post("/v1/predict", {"inputs": inputs})
        assert status == 200
        assert head["x-weft-answered-by"] == "local"
        np.testing.assert_allclose(found["outputs"]["out"], expected(net, x), rtol=1e-5)


def test_safetensors_have_the_bits_of_the_program(client, program):
    x = rows(3).astype(np.float32)
    file = io.BytesIO()
    weft.save({"input": weft.tensor(x)}, file, format="safetensors")
    body, (direct,) = file.getvalue(), program([x])
    status, head, raw = client.ask("POST", "/v1/predict", body, {"Content-Type": RAW})
    assert (status, head["content-type"]) == (200, RAW)
    assert weft.load(io.BytesIO(raw))["out"].numpy().tobytes() == direct.tobytes()
    wanted = {"Content-Type": RAW, "Accept": "application/json"}
    found = json.loads(client.ask("POST", "/v1/predict", body, wanted)[2])
    assert np.float32(found["outputs"]["out"]).tobytes() == direct.tobytes()


def test_many_clients_get_their_own_answers(client, net):
    xs = [rows(1 + k % 3, k) for k in range(40)]
    before = client.metrics().get("weft_batch_rows_count", 0)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        body = [{"inputs": x.tolist()} for x in xs]
        found = list(pool.map(lambda b: client.post("/v1/predict", b), body))
    for x, (status, answer, _) in zip(xs, found, strict=True):
        assert status == 200
        np.testing.assert_allclose(
            answer["outputs"]["out"], expected(net, x), rtol=1e-5, atol=1e-6
        )
    assert client.metrics()["weft_batch_rows_count"] > before


def test_numbers_that_are_not_finite():
    program = served(weft.nn.Identity(), weft.ones(1, 3))
    with running(Server(program)) as client:
        values = [[float("1e30"), "NaN", "-Infinity"]]
        found = client.post("/v1/predict", {"inputs": values})[1]
        assert found["outputs"]["out"] == [[1e30, "NaN", "-Infinity"]]
        status, found, _ = client.post("/v1/predict", b'{"inputs": [[NaN, 0, 0]]}')
        assert status == 400
        assert 'write it as the string \\"NaN\\"' in json.dumps(found)


def test_integers():
    program = served(weft.nn.Embedding(5, 2), weft.zeros(1, 3, dtype=weft.int64))
    with running(Server(program)) as client:
        assert client.post("/v1/predict", {"inputs": [[0, 1, 4]]})[0] == 200
        for wrong, text in (
            ([[0.5, 1, 2]], "expected numbers that are int64, got float64"),
            ([[0, 1, 1 << 70]], "int64"),
            ([[0, 1, 5]], "5"),  # the operator's own check, not an answer
        ):
            status, found, _ = client.post("/v1/predict", {"inputs": wrong})
            assert status == 400
            assert text in found["error"]["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is no JSON"),
        (b"[1]", "must be a JSON object"),
        (b"[" * 9000, "the body is no JSON"),
        (b"\xff\xfe", "the body is no JSON"),
        (b"{}", 'the body must be {"inputs": '),
        (b'{"inputs": {"x": 1}}', "expected the inputs ['input'], got ['x']"),
        (b'{"inputs": 1, "other": 2}', "got the keys ['inputs', 'other']"),
        (b'{"inputs": [[[1, 2, 3]]]}', "expected float32[rows, 2, 3], got"),
        (b'{"inputs": [[[1, 2, 3], [1, 2]]]}', "input: "),
        (b'{"inputs": [[["a", 1, 2], [1, 2, 3]]]}', "expected a number, got 'a'"),
        (b'{"inputs": [[[null, 1, 2], [1, 2, 3]]]}', "expected numbers"),
        (b'{"inputs": true}', "expected numbers that are float32, got bool"),
    ],
)
def test_bad_bodies(client, body, message):
    status, found, _ = client.post("/v1/predict", body)
    assert status == 400
    assert message in found["error"]["message"]


def test_bad_safetensors(client):
    file = io.BytesIO()
    weft.save({"input": weft.ones(1, 2, 3)}, file, format="safetensors")
    good = file.getvalue()
    wide = io.BytesIO()
    weft.save({"input": weft.ones(1, 2, 3).double()}, wide, format="safetensors")
    for body in (b"", good[:20], good[:-1], b"\x80\x04." * 9, wide.getvalue()):
        kind = {"Content-Type": RAW, "Accept": "application/json"}
        status, _, found = client.ask("POST", "/v1/predict", body, kind)
        assert status == 400
        assert json.loads(found)["error"]["message"]


def test_wrong_paths_and_methods(client):
    assert client.ask("GET", "/nothing")[0] == 404
    assert client.ask("GET", "/v1/predict")[0] == 405
    status, found, _ = client.post("/v1/completions", {"prompt": "x"})
    assert status == 400
    assert "use /v1/predict" in found["error"]["message"]


def test_page_models_and_health(client, program):
    status, head, page = client.ask("GET", "/")
    assert status == 200
    assert head["content-type"].startswith("text/html")
    assert b"v1/predict" in page
    assert b"http" not in page.replace(b"http-equiv", b"")  # nothing from elsewhere
    (one,) = json.loads(client.ask("GET", "/v1/models")[2])["data"]
    assert one["weft"] == program.describe()
    assert client.ask("GET", "/health")[0] == 200


def test_metrics_count_requests(client):
    name = 'weft_requests_total{path="/v1/predict",status="400"}'
    before = client.metrics().get(name, 0)
    client.post("/v1/predict", b"{")
    found = client.metrics()
    assert found[name] == before + 1
    assert found["weft_resident_bytes"] > 1e6
    total = found['weft_request_seconds_bucket{path="/v1/predict",le="+Inf"}']
    assert total == found['weft_request_seconds_count{path="/v1/predict"}']


# -- clients that misbehave


def test_bodies_that_are_too_long(client):
    status, found, _ = client.post("/v1/predict", b"x" * 20_001)
    assert status == 413
    assert "20,000 bytes" in found["error"]["message"]
    with client.socket() as link:  # in pieces, without a length
        head = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\n"
        head += b"Transfer-Encoding: chunked\r\n\r\n"
        link.sendall(head + (b"1000\r\n" + b"x" * 4096 + b"\r\n") * 6)
        assert b" 413 " in link.recv(4096)


def test_clients_that_hang_abort_and_send_garbage(client, net):
    x = rows(2)
    silent, slow, garbage, gone = (client.socket() for _ in range(4))
    slow.sendall(
        b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\nab"
    )
    garbage.sendall(bytes(range(256)) * 8)
    gone.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n")
    gone.close()
    status, found, _ = client.post("/v1/predict", {"inputs": x.tolist()})
    assert status == 200
    np.testing.assert_allclose(found["outputs"]["out"], expected(net, x), rtol=1e-5)
    assert b" 400 " in garbage.recv(4096)
    assert b" 408 " in slow.recv(4096)
    assert silent.recv(4096) == b""  # closed, as no head came in time
    for link in (silent, slow, garbage):
        link.close()


def test_a_connection_that_is_used_again(client):
    body = json.dumps({"inputs": rows(1).tolist()}).encode()
    text = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
    with client.socket() as link:
        for _ in range(3):
            link.sendall(text % (len(body), body))
            answer = b""
            while not answer.endswith(b"}}"):
                answer += link.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")
            time.sleep(0.2)  # together more than a request's head may take


# -- files that change


def test_a_changed_file_is_taken_over(net, tmp_path):
    path, x = tmp_path / "net.weft", rows(1)

    def write(module, example=None):
        example = weft.ones(2, 2, 3) if example is None else example
        dynamic = {"input": {0: "rows"}}
        weft.save(weft.graph.capture(module, example, dynamic=dynamic), path)

    write(net)
    from weft.serve import read_program

    server = Server(read_program(str(path)), path=str(path))
    with running(server) as client:
        ask = lambda: client.post("/v1/predict", {"inputs": x.tolist()})[1]["outputs"]
        first = ask()["out"]
        other = weft.nn.Sequential(weft.nn.Flatten(), weft.nn.Linear(6, 3)).eval()
        write(other)
        assert server.reload()
        second = ask()["out"]
        assert second != first
        np.testing.assert_allclose(second, expected(other, x), rtol=1e-5)
        whole = path.read_bytes()
        for bad in (whole[:-9], b"", b"garbage"):
            path.write_bytes(bad)
            assert not server.reload()
        write(weft.nn.Sequential(weft.nn.Flatten(), weft.nn.Linear(6, 4)).eval())
        assert not server.reload()  # other outputs
        path.unlink()
        assert not server.reload()
        assert ask()["out"] == second
        found = client.metrics()
    assert found['weft_reloads_total{result="taken"}'] == 1
    assert found['weft_reloads_total{result="refused"}'] == 5


# -- a cascade


class Wise(weft.nn.Module):
    def forward(self, input):
        return weft.stack([input.sum((1, 2)) * 0 + k for k in range(3)], 1)


def test_a_cascade_asks_the_remote_where_it_is_unsure(program):
    big = served(Wise(), weft.ones(1, 2, 3))
    x = rows(20, 3)
    (own,) = program([x.astype(np.float32)])
    sure = confidence([own]) >= 0.5
    assert 0 < sure.sum() < 20
    with running(Server(big)) as far:
        remote = Remote(f"http://127.0.0.1:{far.port}", rest=60)
        server = Server(program, cascade=Cascade(remote, 0.5))
        with running(server) as client:
            status, found, head = client.post("/v1/predict", {"inputs": x.tolist()})
            assert (status, head["x-weft-answered-by"]) == (200, "both")
            out = np.array(found["outputs"]["out"])
            np.testing.assert_allclose(out[sure], own[sure], rtol=1e-5)
            np.testing.assert_array_equal(out[~sure], [[0, 1, 2]] * (~sure).sum())
            numbers = client.metrics()
            assert numbers['weft_cascade_rows_total{by="local"}'] == sure.sum()
            assert numbers['weft_cascade_rows_total{by="remote"}'] == (~sure).sum()
            for by in ("local", "remote"):
                for q in ("0.5", "0.99"):
                    name = f'weft_cascade_seconds_recent{{by="{by}",quantile="{q}"}}'
                    assert numbers[name] > 0
            far.ask("GET", "/health")
            remote.until = 0
            remote.parts = remote.parts._replace(netloc="127.0.0.1:1")  # nobody there
            _, found, head = client.post("/v1/predict", {"inputs": x.tolist()})
            assert head["x-weft-answered-by"] == "fallback"
            np.testing.assert_allclose(found["outputs"]["out"], own, rtol=1e-5)
            assert remote.resting
            with pytest.raises(RemoteFailed, match="a moment ago"):
                remote([x], program.inputs, program.outputs)


def test_cascades_that_cannot_be(program):
    with pytest.raises(ArgumentError, match="from 0 to 1, got 2"):
        Cascade(Remote("http://x:1"), 2)
    with pytest.raises(ArgumentError, match=r"must be http://host:port"):
        Remote("x:1")


# -- what cannot be served


def test_programs_that_are_refused():
    with pytest.raises(ArgumentError, match="needs example arguments"):
        served(weft.nn.Linear(1, 1))
    with pytest.raises(
        ArgumentError, match="expected a module or a program, got a int"
    ):
        served(3)
    with pytest.raises(ArgumentError, match="batch must be positive, got 0"):
        Limits(batch=0)


def test_a_program_with_state_runs_one_request_at_a_time():
    class Count(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", weft.zeros(()))

        def forward(self, x):
            self.n += 1
            return x * 0 + self.n

    program = served(Count(), weft.ones(1, 2))
    assert not program.rows
    with running(Server(program)) as client:
        body = {"inputs": [[1, 1]]}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = pool.map(lambda _: client.post("/v1/predict", body), range(12))
            numbers = sorted(f[1]["outputs"]["out"][0][0] for f in found)
    assert len(set(numbers)) == 12


# -- the command


def test_the_command(net, tmp_path):
    path = tmp_path / "net.weft"
    dynamic = {"input": {0: "rows"}}
    weft.save(weft.graph.capture(net, weft.ones(2, 2, 3), dynamic=dynamic), path)
    command = [sys.executable, "-m", "weft", "serve", str(path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        port = int(line.rsplit(":", 1)[1])
        client = Client(port)
        until(lambda: _answers(client))
        x = rows(2)
        found = client.post("/v1/predict", {"inputs": x.tolist()})[1]["outputs"]["out"]
        np.testing.assert_allclose(found, expected(net, x), rtol=1e-5)
        taken = subprocess.run(
            [*command[:-1], str(port)], capture_output=True, text=True
        )
        assert taken.returncode == 1
        assert "another port is given by --port" in taken.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.stdout.close()


def _answers(client):
    try:
        return client.ask("GET", "/health")[0] == 200
    except OSError:
        return False


def test_the_command_without_a_program(tmp_path, capsys):
    from weft.cli.main import main

    assert main(["serve", str(tmp_path / "none.weft"), "--port", "0"]) == 1
    weft.save({"x": weft.ones(1)}, tmp_path / "tensors.pt")
    assert main(["serve", str(tmp_path / "tensors.pt"), "--port", "0"]) == 1
    assert "expected a program in" in capsys.readouterr().err
    assert os.path.exists(tmp_path / "tensors.pt")
