"""Makes and checks CURVE keys for the wire.

  edge_app keys new station3 --dir keys              the node's pair: station3.public.toml, station3.secret.toml
  edge_app keys show keys/plc1.public.toml --role controller      the lines for clients.toml
  edge_app keys check keys/*.toml pipelines/defect.yaml           permissions, pairs, roles, doubles

Secrets are written with mode 0600 and are refused when others can read them. A secret file is never written over.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from edge_app.commands.report import add_json_argument, print_json, print_table
from edge_app.config.load import load_pipeline
from edge_app.errors import ConfigError, EdgeAppError, ExitCode
from edge_app.keys import KeyFileError, KeyPair, read_public, read_secret, write_pair
from edge_app.results.auth import Locks, is_pair, load_clients, new_key_pair
from edge_app.results.commands import Role

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
ROLES = [role.name.lower() for role in Role]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of `edge_app keys`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="new|show|check")
    new = actions.add_parser(
        "new",
        help="make a pair",
        description="Make a pair: NAME.secret.toml stays where it is, NAME.public.toml goes to the other side.",
    )
    new.add_argument("name", metavar="NAME", help="of the node or client, e.g. station3 or plc-1")
    new.add_argument("--dir", metavar="DIR", type=Path, default=Path(), help="where to (default: here)")
    show = actions.add_parser(
        "show",
        help="print the public key, and the lines for clients.toml",
        description="Print the lines for the node's clients.toml, so that they can be appended to it (>>).",
    )
    show.add_argument("files", metavar="FILE", type=Path, nargs="+", help="key files")
    show.add_argument("--role", choices=ROLES, default="viewer", help="for clients.toml (default: viewer)")
    check = actions.add_parser(
        "check",
        help="check key files, clients.toml and pipelines",
        description="Check permissions, pairs, roles and doubles; exit code 1 if anything is wrong.",
    )
    check.add_argument("files", metavar="FILE", type=Path, nargs="+", help="*.toml and pipeline YAML")
    for action in (new, show, check):
        add_json_argument(action)


def run(args: argparse.Namespace) -> int:
    """One of the three."""
    actions: dict[str, Callable[[argparse.Namespace], ExitCode]] = {"new": new_pair, "show": show, "check": check}
    try:
        return int(actions[args.action](args))
    except KeyFileError as error:
        raise ConfigError(str(error)) from error


def new_pair(args: argparse.Namespace) -> ExitCode:
    """`edge_app keys new NAME`."""
    if not NAME.fullmatch(args.name):
        raise ConfigError("not a name for a key", wanted="letters, digits, '-', '_' and '.'", got=ascii(args.name))
    pair = new_key_pair(args.name)
    public_file, secret_file = write_pair(args.dir, pair)
    if args.json:
        files = {"public_file": str(public_file), "secret_file": str(secret_file)}
        print_json({"name": args.name, "public": pair.public, **files})
    else:
        print(f"{secret_file}  secret: stays on this machine\n{public_file}  public: give it to the other side")
    return ExitCode.OK


def show(args: argparse.Namespace) -> ExitCode:
    """`edge_app keys show FILE...`: never the secret."""
    pairs = [read_public(file) for file in args.files]
    if args.json:
        print_json({"keys": [{"name": pair.name, "public": pair.public} for pair in pairs]})
    else:
        print("\n\n".join(entry(pair, args.role) for pair in pairs))
    return ExitCode.OK


def entry(pair: KeyPair, role: str) -> str:
    """The lines of clients.toml for a key."""
    return f'[[client]]\nname = "{pair.name}"\npublic = "{pair.public}"\nrole = "{role}"'


def check(args: argparse.Namespace) -> ExitCode:
    """`edge_app keys check FILE...`: exit code 1 if anything is wrong."""
    found = [(file, what, problem) for file in args.files for what, problem in [check_file(file)]]
    if args.json:
        print_json({"files": [{"file": str(f), "is": what, "problem": problem} for f, what, problem in found]})
    else:
        print_table("keys", ("file", "is", "finding"), [(f, what, problem or "ok") for f, what, problem in found])
    return ExitCode.CHECK_FAILED if any(problem for _, _, problem in found) else ExitCode.OK


def check_file(file: Path) -> tuple[str, str | None]:
    """What a file is, and what is wrong with it (None: nothing)."""
    what, test = kind_of(file)
    try:
        test(file)
    except (EdgeAppError, KeyFileError) as error:
        return what, str(error)
    return what, None


def kind_of(file: Path) -> tuple[str, Callable[[Path], object]]:
    """By its ending, and for other TOML by what is in it."""
    if file.suffix in (".yaml", ".yml"):
        return "pipeline", check_pipeline
    if file.name.endswith(".secret.toml"):
        return "secret key", check_secret
    if file.name.endswith(".public.toml"):
        return "public key", read_public
    try:
        is_list = "client" in tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return "not known", load_clients  # which says what is wrong
    return ("clients", load_clients) if is_list else ("key", check_secret)


def check_secret(file: Path) -> None:
    """Permissions, and that secret and public are one pair."""
    pair = read_secret(file)
    if not is_pair(pair):
        raise KeyFileError(f"{file}: secret and public are not of one pair; make a new one")


def check_pipeline(file: Path) -> None:
    """That a node with this pipeline would find its key and its list of clients."""
    security = load_pipeline(file).results.security
    if security.key is None:
        return
    check_secret(security.key)
    Locks(security)
