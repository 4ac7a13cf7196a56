"""Command line of ``coresteer-agent``: run, enrol, topology, sample, capture, restore, persist, simulate, …"""

import argparse
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from coresteer_agent.config import (
    DEFAULT_BACKEND,
    Config,
    ConfigError,
    check_backends,
    check_interval,
    default_state_dir,
    parse_labels,
    parse_ports,
)
from coresteer_agent.config_file import CONFIG_FILE, read_config_file
from coresteer_agent.version import VERSION

EXIT_CODES = """exit codes:
  0  done; for run: ended by SIGTERM or Ctrl-C
  1  failed; the line above says why. For restore: a setting could not be restored,
     or persisted settings could not be forgotten
  2  the arguments are invalid or contradict each other
  130  Ctrl-C interrupted capture, restore or workload; run it again, it may be incomplete"""

log = logging.getLogger("coresteer")

_M_ARENA_MAX = -8
"""glibc, malloc.h: maximum number of malloc arenas."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. Subcommands import their modules late, to save memory."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    args = _parser(arguments[:1]).parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("websockets").setLevel(logging.CRITICAL)  # the link logs what matters
    try:
        command: Callable[[argparse.Namespace], int] = args.command
        return command(args)
    except ConfigError as error:
        print(f"coresteer-agent: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130 if args.command in (_restore, _capture, _workload) else 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader closed the pipe
        return 1


def _parser(detailed: Sequence[str] = ("simulate", "workload")) -> argparse.ArgumentParser:
    """Return the parser. detailed: which of these two commands get their arguments, whose modules need memory."""
    parser = argparse.ArgumentParser(
        prog="coresteer-agent",
        description="Observes this machine's interrupts and network queues for Coresteer, and changes them on request.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = _command(commands, "run", "observe this machine and report to the backend", _run)
    _add_backend(run)
    _add_root(run)
    _add_state_dir(run)
    run.add_argument("--interval", type=float, metavar="S", help="seconds between samples, 0.1 to 60 (default: 1)")
    run.add_argument(
        "--name", help="this node's name when it enrols, also from CORESTEER_NODE_NAME (default: the host name)"
    )
    run.add_argument(
        "--token-file", type=Path, metavar="FILE", help="enrol with the enrolment token in FILE if there is no key yet"
    )
    run.add_argument(
        "--load-option-ports",
        metavar="PORTS",
        help="for coscheduling: write this node's load into the messages of these TCP ports by an eBPF program instead "
        "of sending it in datagrams, also from CORESTEER_LOAD_OPTION_PORTS; for example 7700-7799 (default: none)",
    )

    run.add_argument(
        "--label",
        action="append",
        metavar="NAME=VALUE",
        help="label of this node, repeated or separated by spaces, also from CORESTEER_LABELS; for example rack=r01",
    )

    enrol = _command(commands, "enrol", "get this node's own key for an enrolment token", _enrol)
    _add_backend(enrol)
    _add_state_dir(enrol)
    enrol.add_argument("--token", required=True, help="the enrolment token")
    enrol.add_argument("--name", help="this node's name, also from CORESTEER_NODE_NAME (default: the host name)")

    for name, what in (("topology", "CPUs, NUMA nodes and caches"), ("sample", "all raw counters once")):
        command = _command(commands, name, f"print {what}", _print)
        command.set_defaults(what=name)
        _add_root(command)
        command.add_argument(
            "-o", "--output", choices=["json"], default="json", help="output format (default: %(default)s)"
        )

    capture = _command(
        commands, "capture", "copy what the agent reads, without secrets, for analysis elsewhere", _capture
    )
    capture.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder; use it as --root")
    _add_root(capture)

    restore = _command(commands, "restore", "restore every setting to its value before Coresteer changed it", _restore)
    _add_root(restore)
    _add_state_dir(restore)
    restore.add_argument("-o", "--output", choices=["text", "json"], default="text", help="default: %(default)s")

    persist = _command(
        commands, "persist", "apply the present, confirmed values of settings again after each reboot", _persist
    )
    persist.add_argument("keys", nargs="*", metavar="KEY", help="a setting, for example irq/41/affinity")
    instead = persist.add_mutually_exclusive_group()
    instead.add_argument(
        "--list", action="store_true", help="print the persisted settings, and which have another value"
    )
    instead.add_argument("--remove", action="store_true", help="persist these settings no longer; their values stay")
    _add_root(persist)
    _add_state_dir(persist)

    accept = _command(
        commands,
        "accept-lost-journal",
        "let the agent change settings again although original values were lost, and begin a new journal",
        _accept_lost_journal,
    )
    _add_root(accept)
    _add_state_dir(accept)

    simulate = _command(commands, "simulate", "simulate many nodes, for demonstration and load tests", _simulate)
    if "simulate" in detailed:
        from coresteer_agent.simulate import add_arguments  # noqa: PLC0415 - needs asyncio, which the agent avoids

        add_arguments(simulate)

    workload = _command(commands, "workload", "generate load on this machine only, and measure", _workload)
    if "workload" in detailed:
        from coresteer_agent.workloads import arguments as workloads  # noqa: PLC0415 - only this subcommand needs it

        workloads.add(workload)
    return parser


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    what: str,
    command: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=what,
        description=what[0].upper() + what[1:] + ".",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=command)
    return parser


def _add_backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        default=CONFIG_FILE,
        metavar="FILE",
        help="for what neither an option nor a variable of the environment says (default: %(default)s)",
    )
    parser.add_argument(
        "--backend",
        action="append",
        metavar="URL",
        help="address of the backend, also from CORESTEER_BACKEND; of several, repeated or separated by commas "
        f"(default: {DEFAULT_BACKEND})",
    )
    parser.add_argument("--insecure", action="store_true", help="allow http to a backend on another machine")


def _add_root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root", type=Path, default=Path("/"), metavar="DIR", help="a captured tree instead of this machine"
    )


def _add_state_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-dir",
        type=Path,
        default=default_state_dir(),
        metavar="DIR",
        help="where agent/key.json and agent/journal.jsonl are, also from CORESTEER_STATE_DIR (default: %(default)s)",
    )


def _root(args: argparse.Namespace) -> Path:
    root: Path = args.root
    if not root.is_dir():
        raise ConfigError(f"The root directory {root} does not exist or is not a directory.")
    return root.resolve()


def _config(args: argparse.Namespace, root: Path = Path("/")) -> Config:
    """Return the configuration: options, else the environment, else the file, else defaults. Raises ConfigError."""
    file = read_config_file(args.config)
    given, environment = vars(args), os.environ
    backends = [environment["CORESTEER_BACKEND"]] if "CORESTEER_BACKEND" in environment else file.backends
    labels = [f"{name}={value}" for name, value in file.labels.items()]
    labels = [environment["CORESTEER_LABELS"]] if "CORESTEER_LABELS" in environment else labels
    ports = environment.get("CORESTEER_LOAD_OPTION_PORTS", file.load_option_ports)
    interval_s: float | None = given.get("interval")
    token_file = given.get("token_file") or file.token_file
    return Config(
        backends=check_backends(args.backend or backends or [DEFAULT_BACKEND], insecure=args.insecure or file.insecure),
        state_dir=args.state_dir.absolute(),
        root=root,
        interval_s=check_interval(file.interval if interval_s is None else interval_s),
        name=args.name or environment.get("CORESTEER_NODE_NAME") or file.name or socket.gethostname(),
        token_file=None if token_file is None else Path(token_file),
        load_option_ports=parse_ports(given.get("load_option_ports") or ports),
        labels=parse_labels(given.get("label") or labels),
    )


def _avoid_openssl() -> None:
    """Let hashlib use Python's own hash functions where it has them all: OpenSSL's cost 3.3 MiB of memory.

    Without effect once hashlib is imported. The agent hashes a key now and then.
    """
    from importlib.util import find_spec  # noqa: PLC0415 - only the command run needs it

    sha2 = ("_sha2",) if sys.version_info >= (3, 12) else ("_sha256", "_sha512")
    if all(find_spec(name) for name in ("_md5", "_sha1", *sha2, "_sha3", "_blake2")):
        sys.modules.setdefault("_hashlib", None)  # type: ignore[arg-type]  # import raises ModuleNotFoundError for None


def _run(args: argparse.Namespace) -> int:
    _avoid_openssl()
    import ctypes  # noqa: PLC0415 - pyudev needs it as well

    with suppress(AttributeError):  # only glibc has arenas
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)  # one arena for both threads: 0.3 MiB less, without contention
    from coresteer_agent.apply.journal import JournalError  # noqa: PLC0415 - only this subcommand needs it
    from coresteer_agent.linux import capabilities  # noqa: PLC0415 - only this subcommand needs it
    from coresteer_agent.runtime.loop import Agent, run_until_signal  # noqa: PLC0415 - only this subcommand needs it
    from coresteer_agent.transport.enrol import EnrolError, NodeKey, enrol_with_file, load_or_request_key  # noqa: PLC0415 - only this subcommand needs it

    config = _config(args, _root(args))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    def renew_key() -> NodeKey:
        return enrol_with_file(config)

    last_error = ""
    while True:
        try:
            key = load_or_request_key(config)
            break
        except EnrolError as error:
            if not error.transient:
                log.error("%s", error)
                return 1
            if str(error) != last_error:
                last_error = str(error)
                log.warning("%s The agent retries.", error)
            time.sleep(2)
    try:
        capabilities.keep_needed()
    except OSError as error:  # a sandbox forbids the call; Hello tells which capabilities there are
        log.warning("The agent keeps all capabilities that it was given: %s.", error)
    try:
        run_until_signal(Agent(config, key, renew_key if config.token_file is not None else None))
    except JournalError as error:
        log.error("%s Without its journal the agent may not change anything, so it ends.", error)
        return 1
    return 0


def _enrol(args: argparse.Namespace) -> int:
    from coresteer_agent.transport.enrol import EnrolError, enrol  # noqa: PLC0415 - only this subcommand needs it

    config = _config(args)
    try:
        key = enrol(config.backends, args.token.strip(), config.name, config.key_path)
    except EnrolError as error:
        log.error("%s", error)
        return 1
    print(f"Enrolled as node {key.node_id}, {key.name}. Its key is in {config.key_path}.")
    return 0


def _print(args: argparse.Namespace) -> int:
    from coresteer_agent import print_json  # noqa: PLC0415 - only these subcommands need it
    from coresteer_agent.collect.errors import ParseError  # noqa: PLC0415 - only this subcommand needs it

    root = _root(args)
    try:
        text = print_json.topology_json(root) if args.what == "topology" else print_json.sample_json(root)
    except ParseError as error:
        log.error("%s", error)
        return 1
    sys.stdout.write(text.decode() + "\n")
    sys.stdout.flush()
    return 0


def _capture(args: argparse.Namespace) -> int:
    from coresteer_agent.capture import MANIFEST, PRIVACY_NOTE, capture  # noqa: PLC0415 - only this subcommand needs it

    folder: Path = args.folder
    root = _root(args)
    try:
        if folder.exists() and not (folder.is_dir() and next(folder.iterdir(), None) is None):
            raise ConfigError(f"{folder} already exists and is not an empty folder; name a new one.")
        folder.mkdir(exist_ok=True)
        captured = capture(root, folder)
    except OSError as error:
        log.error("%s cannot be written: %s.", error.filename or folder, error.strerror)
        return 1
    print(f"{folder} contains {captured.files} files that the agent reads here.\n{PRIVACY_NOTE}", end="")
    if captured.unread:
        many = f"{len(captured.unread)} file{'s' if len(captured.unread) > 1 else ''}"
        print(f"{many} could not be read; {folder / MANIFEST} lists them with the reason.")
    return 0


def _restore(args: argparse.Namespace) -> int:
    import msgspec  # noqa: PLC0415 - only this subcommand needs it

    from coresteer_agent.apply.journal import JournalError, LostJournalError  # noqa: PLC0415 - only this subcommand needs it
    from coresteer_agent.apply.restore import restore  # noqa: PLC0415 - only this subcommand needs it

    path = _journal_path(args)
    try:
        results = restore(path, _root(args))
    except (JournalError, OSError) as error:
        log.error("%s", error)
        if isinstance(error, LostJournalError):
            _forget_persisted(args)
        return 1
    forgotten = _forget_persisted(args)
    if args.output == "json":
        print(msgspec.json.encode(results or []).decode())
    elif results is None:
        print(f"There is no journal at {path}: Coresteer has changed nothing with this state directory.")
        print("If the agent ran with another state directory, pass that with --state-dir.")
    elif not results:
        print("Nothing to restore: every setting has its original value.")
    else:
        for result in results:
            print(result.sentence)
    if forgotten and args.output == "text":
        print("No setting is persisted any more.")
    return 1 if forgotten is None or any(result.stuck for result in results or []) else 0


def _forget_persisted(args: argparse.Namespace) -> bool | None:
    """Return whether anything was persisted; None if it still is."""
    from coresteer_agent.apply.persist import forget_persisted  # noqa: PLC0415 - only this subcommand needs it

    try:
        return forget_persisted(_journal_path(args), _root(args))
    except OSError as error:
        log.error(
            "The persisted settings cannot be forgotten: %s. The agent sets them again after a reboot; "
            "run coresteer-agent restore again once %s can be written.",
            error.strerror,
            args.state_dir,
        )
        return None


def _persist(args: argparse.Namespace) -> int:
    from coresteer_agent.apply.journal import JournalError  # noqa: PLC0415 - only this subcommand needs it
    from coresteer_agent.apply.persist import PersistError, list_persisted, persist, remove_persisted  # noqa: PLC0415 - only this subcommand needs it
    from coresteer_agent.apply.persisted_file import PersistedFileError  # noqa: PLC0415 - only this subcommand needs it

    if args.list == bool(args.keys):
        raise ConfigError("Name the settings, or list what is persisted with --list.")
    path = _journal_path(args)
    try:
        if args.remove:
            remove_persisted(path, _root(args), args.keys)
            return 0
        root = _root(args)
        lines = list_persisted(path, root) if args.list else [each.sentence for each in persist(path, root, args.keys)]
    except (PersistError, PersistedFileError, JournalError, OSError) as error:
        log.error("%s", error)
        return 1
    for line in lines:
        print(line)
    return 0


def _journal_path(args: argparse.Namespace) -> Path:
    state_dir: Path = args.state_dir
    return state_dir.absolute() / "agent/journal.jsonl"


def _accept_lost_journal(args: argparse.Namespace) -> int:
    from coresteer_agent.apply.journal import JournalError, accept_lost_journal  # noqa: PLC0415 - only this subcommand needs it

    path = _journal_path(args)
    try:
        accepted = accept_lost_journal(path, _root(args))
    except (JournalError, OSError) as error:
        log.error("%s", error)
        return 1
    if accepted:
        print(f"A new journal begins at {path}: the present values are now the original ones. Restart the agent.")
    else:
        print(f"The journal {path} is not lost; nothing was changed.")
    return 0


def _simulate(args: argparse.Namespace) -> int:
    from coresteer_agent.simulate import main as simulate  # noqa: PLC0415 - needs asyncio, which the agent avoids

    return simulate(args)


def _workload(args: argparse.Namespace) -> int:
    from coresteer_agent.workloads import arguments  # noqa: PLC0415 - only this subcommand needs it

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return arguments.main(args)


if __name__ == "__main__":
    sys.exit(main())
