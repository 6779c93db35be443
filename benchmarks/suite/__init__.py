"""Weft beside PyTorch, JAX and tinygrad on the same work, taken in turns.

    python -m benchmarks.suite                             everything
    python -m benchmarks.suite --only mlp,gpt --rounds 7 --frameworks weft,torch

``docs/benchmarks.md`` says how to run it and how to read what it prints.

    case        one piece of work: how to build it, its FLOPs and bytes
    libs/       the same building blocks in each framework
    workloads/  models and operators, written once over those blocks
    worker      a process with one framework, asked for one timed round at a time
    run         asks the workers in turn, compares what they computed
    table, picture, report      what is shown of it
"""
