"""One decoder-only transformer, plain or graded, the plain model that a graded one compiles to, and its files."""

from gllm_lib.models.compile import CompileError, compile_grades
from gllm_lib.models.config import (
    GLLM_7B,
    GLLM_MEDIUM,
    GPTConfig,
    Grading,
    gpt2_like,
    llama_like,
    parameter_count,
)
from gllm_lib.models.export import export_huggingface, load_model, save_model
from gllm_lib.models.gpt import GPT
from gllm_lib.models.tables import HashedTables, table_ids

__all__ = [
    "GLLM_7B",
    "GLLM_MEDIUM",
    "GPT",
    "CompileError",
    "GPTConfig",
    "Grading",
    "HashedTables",
    "compile_grades",
    "export_huggingface",
    "gpt2_like",
    "llama_like",
    "load_model",
    "parameter_count",
    "save_model",
    "table_ids",
]
