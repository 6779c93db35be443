"""``weft.utils.model_zoo``: the older name of functions of ``weft.hub``."""

from weft import late

__all__ = ["load_url"]


def load_url(*args: object, **options: object) -> object:
    """``weft.hub.load_state_dict_from_url``.

    >>> weft.utils.model_zoo.load_url("https://host/no.pt", model_dir="none")
    Traceback (most recent call last):
        ...
    RuntimeError: hub: Weft downloads nothing; fetch https://host/no.pt ...
    """
    return late.find("hub").load_state_dict_from_url(*args, **options)
