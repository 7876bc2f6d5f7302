"""Apply the options of a load request to ONNX Runtime's Python package.

Sources: the option keys are those of ``onnxruntime_session_options_config_keys.h`` and
``dml_session_options_config_keys.h``. The provider options are those that ``dml_provider_factory.cc`` reads. It
silently ignores all others, so no others are passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def _flag(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "0") == "1"


def config_entries(options: Mapping[str, str], device: str) -> dict[str, str]:
    """Return the session config entries of ONNX Runtime for these options.

    Options ``config:KEY`` set entries directly, and override the others.
    """
    entries: dict[str, str] = {}
    if _flag(options, "record_placement"):
        entries["session.record_ep_graph_assignment_info"] = "1"
    if device == "dml":
        if _flag(options, "unfused"):
            entries["ep.dml.disable_graph_fusion"] = "1"
        if not _flag(options, "cpu_fallback"):
            entries["session.disable_cpu_ep_fallback"] = "1"
    else:
        # The CPU provider fuses DequantizeLinear and MatMul into MatMulNBits. By default that rounds its data to 8 bits
        # (level 4). The reference must be computed in FP32 (level 1).
        entries["session.qdq_matmulnbits_accuracy_level"] = "1"
    entries.update({key.removeprefix("config:"): value for key, value in options.items() if key.startswith("config:")})
    return entries


def adapter_number(options: Mapping[str, str]) -> int | None:
    """Return the adapter's number in IDXGIFactory1::EnumAdapters1; ``None`` if a preference chooses the adapter.

    The default is 0. Without a number, the provider would request the fastest adapter from DXCore. On many laptops that
    is not adapter 0, and without DXCore it is an error.
    """
    if "device_id" not in options and "performance_preference" in options:
        return None
    return int(options.get("device_id", "0"))


def provider_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of DmlExecutionProvider: an adapter number or a preference, and the use of metacommands.

    With a number, the provider would ignore the preference.
    """
    number, preference = adapter_number(options), "performance_preference"
    chosen = {preference: options[preference]} if number is None else {"device_id": str(number)}
    return {**chosen, "disable_metacommands": "true"} if _flag(options, "disable_metacommands") else chosen


def providers(options: Mapping[str, str], device: str) -> list[object]:
    """Return the list of providers for ``InferenceSession``; the CPU follows DirectML only with ``cpu_fallback``."""
    if device != "dml":
        return ["CPUExecutionProvider"]
    dml = ("DmlExecutionProvider", provider_options(options))
    # With the fallback disabled, session creation fails if the list names the CPU provider.
    return [dml, "CPUExecutionProvider"] if _flag(options, "cpu_fallback") else [dml]


def choose_device(ort: Any, settings: Any, options: Mapping[str, str]) -> None:
    """Choose DirectML in ``settings`` as Windows ML applications do: by a device of ONNX Runtime, or by a policy.

    By device, a preference is ignored: without a number, it is adapter 0. By policy, the options for adapter and
    metacommands are ignored.

    Raises:
        ValueError: this ONNX Runtime has no such function, or no such device.
    """
    if not hasattr(ort, "get_ep_devices"):
        raise ValueError(f"onnxruntime {ort.__version__} opens no session by device or policy; 1.23 does")
    if options["open_by"] == "policy":
        settings.set_provider_selection_policy(ort.OrtExecutionProviderDevicePolicy.PREFER_GPU)
        return
    number = str(adapter_number(options) or 0)
    dml = [one for one in ort.get_ep_devices() if one.ep_name == "DmlExecutionProvider"]
    matches = [one for one in dml if one.device.metadata.get("DxgiAdapterNumber") == number]
    if not matches:
        raise ValueError(f"ONNX Runtime lists no DirectML device with the number {number}")
    more = {"disable_metacommands": "true"} if _flag(options, "disable_metacommands") else {}
    settings.add_provider_for_devices(matches[:1], more)


def session_settings(settings: Any, options: Mapping[str, str], device: str, profile: str, levels: Any) -> None:
    """Change ``settings``, an ``onnxruntime.SessionOptions``, for these options.

    Args:
        device: ``dml`` or ``cpu``.
        profile: prefix of the profile's file, if the options ask for a profile.
        levels: ``onnxruntime.GraphOptimizationLevel``.
    """
    level = options.get("optimization", "all").upper()
    name = "ORT_DISABLE_ALL" if level == "DISABLED" else f"ORT_ENABLE_{level}"
    settings.graph_optimization_level = getattr(levels, name)
    settings.log_severity_level = int(options.get("log_level", "3"))
    if int(options.get("threads", "0")):
        settings.intra_op_num_threads = int(options["threads"])
    if device == "dml":
        # DirectML supports neither memory patterns nor parallel execution. Recent releases correct both settings, older
        # ones fail.
        settings.enable_mem_pattern = False
    settings.execution_mode = type(settings.execution_mode).ORT_SEQUENTIAL
    if _flag(options, "profile"):
        settings.enable_profiling = True
        settings.profile_file_prefix = profile
    for key, value in options.items():
        kind, _, name = key.partition(":")
        if kind == "dim":
            settings.add_free_dimension_override_by_name(name, int(value))
        elif kind == "denotation":
            settings.add_free_dimension_override_by_denotation(name, int(value))
    for key, value in config_entries(options, device).items():
        settings.add_session_config_entry(key, value)
