"""Loops over the rows of a tensor whose number of rows is open."""

import weft

PROGRAMS = []
REFUSED = []


def program(fn):
    PROGRAMS.append(fn)
    return fn


def refused(text):
    def enter(fn):
        REFUSED.append((fn, text))
        return fn

    return enter


@program
def decays(x):
    total = weft.zeros(3)
    for row in x:
        fresh = row * 2
        total = total * 0.5 + fresh
    return total


@program
def adds_in_place(x):
    total = weft.zeros(3)
    for row in x:
        total += row
    return total


@program
def chooses_by_row(x):
    total, count = weft.zeros(3), weft.tensor(0)
    for row in x:
        if row.sum() > 1.5:
            total = total + row
            count = count + 1
    return total * count


@refused("changes what 'seen' leads to")
def collects(x):
    seen = []
    for row in x:
        seen.append(row)
    return seen[0]


@refused("'row' is used after the `for`")
def uses_the_last_row(x):
    total = weft.zeros(3)
    for row in x:
        total = total + row
    return total + row


@refused("has a `break` of a loop around it|a `break`")
def stops(x):
    total = weft.zeros(3)
    for row in x:
        if row.sum() > 1:
            break
        total = total + row
    return total
