"""``weft.distributed.rpc``: there are no calls to other processes, as it says."""


def is_available() -> bool:
    """Whether functions can be called in other processes: no.

    >>> weft.distributed.rpc.is_available()
    False
    """
    return False
