"""What torch keeps for each thread by itself, carried into another one."""

from __future__ import annotations

from contextlib import ExitStack

import torch


class ThreadSettings:
    """The caller's grad mode, autocast, default device, number of threads and CUDA stream.

    The default dtype is not among them, because torch has one for all threads.

    Examples
    --------
    >>> import threading
    >>> def show():
    ...     with settings.in_force():
    ...         print(torch.is_grad_enabled(), torch.get_autocast_dtype("cpu"))
    >>> with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
    ...     settings = ThreadSettings()
    >>> thread = threading.Thread(target=show)
    >>> thread.start(); thread.join()
    False torch.float16
    """

    def __init__(self) -> None:
        accelerator = torch.accelerator.current_accelerator()
        devices = ["cpu"] if accelerator is None else ["cpu", accelerator.type]
        self._autocast = {
            device: torch.get_autocast_dtype(device) for device in devices if torch.is_autocast_enabled(device)
        }
        self._caches = torch.is_autocast_cache_enabled()
        self._grad, self._inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        self._device = torch.get_default_device()
        self._n_threads = torch.get_num_threads()
        self._stream = torch.cuda.current_stream() if torch.cuda.is_initialized() else None

    def in_force(self) -> ExitStack:
        """A context for the other thread, in which all of it is as it was here."""
        stack = ExitStack()
        torch.set_num_threads(self._n_threads)
        if self._inference:
            stack.enter_context(torch.inference_mode())
        stack.enter_context(torch.set_grad_enabled(self._grad))
        for device, dtype in self._autocast.items():
            stack.enter_context(torch.autocast(device, dtype=dtype, cache_enabled=self._caches))
        if self._device.type != "cpu":
            stack.enter_context(self._device)
        if self._stream is not None:
            stack.enter_context(torch.cuda.stream(self._stream))
        return stack
