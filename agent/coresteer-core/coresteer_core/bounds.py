"""Types with bounds (length, range) for the fields of wire messages and stored structs.

msgspec enforces a bound when it decodes or converts, with the field's path in the error, and never when Python code
constructs a struct. NaN fails every bound of a number. What a database holds was accepted under these bounds, so a
bound may be widened at any time but narrowed only together with a migration. Control characters and CPU lists are
validated by the backend after decoding, because patterns are slow in msgspec.
"""

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from coresteer_core.cpuset import MAX_CPUS

MAX_INTEGER: Final = 2**53
"""Exclusive bound of every integer: what a double, and so JavaScript, represents exactly."""
MAX_UNIX_MS: Final = 2**47
"""Exclusive bound of a time, in the year 6429: a node's clock may have been wrong when it noted something."""
MAX_NAME: Final = 256
MAX_SENTENCE: Final = 2000
MAX_VALUE: Final = 65_536
MAX_PATH: Final = 4096
LABEL_NAME: Final = r"[a-z0-9][a-z0-9._/-]*"
"""Pattern of the name of a node's label."""
MAX_LABEL: Final = 63
"""Characters of a label's name, and of its value; those that Kubernetes allows for the value."""
MIN_CONFIRM_TIMEOUT_S: Final = 30.0
MAX_CONFIRM_TIMEOUT_S: Final = 600.0

Name: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]
"""Text of at most 256 characters: the name of a device, process, queue or driver."""
Sentence: TypeAlias = Annotated[str, Meta(max_length=MAX_SENTENCE)]
Value: TypeAlias = Annotated[str, Meta(max_length=MAX_VALUE)]
"""Text of at most 64 KiB: the value of a setting, or a sentence that quotes one."""
CpuList: TypeAlias = Annotated[str, Meta(max_length=MAX_VALUE, extra={"text": "cpu-list"})]
"""A CPU list as the kernel prints it, ``0-3,8``."""
CgroupPath: TypeAlias = Annotated[str, Meta(max_length=MAX_PATH)]

CpuNumber: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_CPUS)]
Count: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_INTEGER)]
KernelInteger: TypeAlias = Annotated[int, Meta(ge=-1, lt=MAX_INTEGER)]
"""An integer from sysfs, where -1 means none."""
Pid: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]
Quantity: TypeAlias = Annotated[float, Meta(ge=0, lt=float(MAX_INTEGER))]
"""A finite measured amount."""
ConfirmTimeout: TypeAlias = Annotated[float, Meta(ge=MIN_CONFIRM_TIMEOUT_S, le=MAX_CONFIRM_TIMEOUT_S)]
"""Seconds after which a change that is not confirmed is rolled back."""
UnixMs: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_UNIX_MS)]
"""Milliseconds since 1970."""
Version: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]
PolicyId: TypeAlias = Annotated[str, Meta(pattern=r"\A[0-9]{1,9}\Z")]
"""A policy's row number as text."""
