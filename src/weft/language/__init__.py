"""``weft.language``: language models from files, and the texts that they write.

>>> config = weft.language.Config(vocab=50, context=64, width=32, layers=1, heads=2)
>>> model = weft.language.LanguageModel(weft.language.Decoder(config))
>>> [len(model.generate([1, 2], max_new_tokens=n)) for n in (1, 4)]
[1, 4]
"""

from weft.language.config import Config, Rotation, config_of, described, read_config
from weft.language.decoder import Decoder
from weft.language.engine import Engine, Request
from weft.language.model import LanguageModel, load
from weft.language.sampling import Sampling
from weft.language.tokenizer import Tokenizer

__all__ = [
    "Config",
    "Decoder",
    "Engine",
    "LanguageModel",
    "Request",
    "Rotation",
    "Sampling",
    "Tokenizer",
    "config_of",
    "described",
    "load",
    "read_config",
]
