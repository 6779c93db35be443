"""Quantisation: models of integers, smaller and faster: ``weft.quantize``."""

from weft.quantization.comparison import Report, report
from weft.quantization.conversion import quantizable, quantize
from weft.quantization.modules import (
    DynamicConv,
    DynamicLinear,
    QuantizedConv,
    QuantizedEmbedding,
    QuantizedLinear,
    QuantizedModule,
    WeightOnlyConv,
    WeightOnlyLinear,
)
from weft.quantization.observers import Entropy, MinMax, Percentile
from weft.quantization.training import FakeQuantize, convert, prepare_qat

__all__ = [
    "DynamicConv",
    "DynamicLinear",
    "Entropy",
    "FakeQuantize",
    "MinMax",
    "Percentile",
    "QuantizedConv",
    "QuantizedEmbedding",
    "QuantizedLinear",
    "QuantizedModule",
    "Report",
    "WeightOnlyConv",
    "WeightOnlyLinear",
    "convert",
    "prepare_qat",
    "quantizable",
    "quantize",
    "report",
]
