"""Runs the legs of the official MCP conformance suite against Gemel's server and client, over loopback.

python -m tests.conformance.run                              all legs; exit code 1 on anything unexpected or stale
python -m tests.conformance.run --leg server-requirements-2026 -v
python -m tests.conformance.run --leg client-all-2026-07-28 --scenario request-metadata --keep out
python -m tests.conformance.run --write                      note as expected what fails now
python -m tests.conformance.run --side server --server-command 'python other.py http PORT' --expected elsewhere
"""

import argparse
import shlex
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from tests.conformance import verdict
from tests.conformance.suite import Suite
from tests.interop.peers import install

HERE = Path(__file__).resolve().parent
GEMEL = str(Path(sys.executable).with_name("gemel"))
SERVER = f"{GEMEL} run examples/everything_server.py --http --port PORT"
CLIENT = f"{sys.executable} -m tests.conformance.client"


def _run_leg(suite: Suite, name: str, options: list[str], keep: Path, chosen: argparse.Namespace) -> bool:
    """Run a leg and print its line; whether all was as expected."""
    begin = time.monotonic()
    file: Path = chosen.expected / f"{name}.yaml"
    try:
        leg = suite.run(name, options, chosen.scenario, file, keep / name)
    except RuntimeError as error:
        print(f"{name:<27} WRONG: {error}", flush=True)
        return False
    if chosen.write and not chosen.scenario:
        verdict.write_expected(file, leg.observed())
    unexpected, stale = verdict.differences(leg, verdict.read_expected(file))
    if leg.suite_status and not (unexpected or stale or chosen.write or chosen.scenario):
        unexpected.append(f"the suite itself disagrees (exit {leg.suite_status}): see suite.log")
    _print_leg(name, leg, unexpected, stale, time.monotonic() - begin)
    _print_details(leg, unexpected, stale, chosen.verbose)
    return not unexpected and not stale


def _print_leg(name: str, leg: verdict.Leg, unexpected: list[str], stale: list[str], seconds: float) -> None:
    good = [one for one in leg.scored if not one.failing and not one.is_vacuous]
    checks = [status for one in leg.scored for _, status, _ in one.checks]
    failed = sum(status in ("FAILURE", "WARNING") for status in checks)
    exits = f"  {sum(status != 0 for status in leg.exits.values())} non-zero exits" if leg.side == "client" else ""
    print(
        f"{name:<27}{len(good):>3} of {len(leg.scored):>2} scenarios  {checks.count('SUCCESS'):>3} checks passed "
        f"{failed:>3} failed  {checks.count('SKIPPED')} skipped{exits}  {len(unexpected)} unexpected  {len(stale)} stale  "
        f"(+{len(leg.unscored)} unscored)  {seconds:.1f} s",
        flush=True,
    )


def _print_details(leg: verdict.Leg, unexpected: list[str], stale: list[str], verbose: bool) -> None:
    messages = {f"{one.name}:{id_}": text for one in leg.scenarios.values() for id_, _, text in one.checks}
    for entry in unexpected:
        print(f"    unexpected  {entry}  {messages.get(entry, '')[:200]}")
    for entry in stale:
        print(f"    stale       {entry}")
    for one in leg.scenarios.values() if verbose else ():
        for id_, status, text in one.checks:
            print(f"    . {status:<8}{one.name}:{id_} {text[:160] if status != 'SUCCESS' else ''}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leg", action="append", help="only this leg (may be repeated)")
    parser.add_argument("--side", choices=("server", "client", "authorization"))
    parser.add_argument("--scenario", help="only this scenario, at the revision of the legs chosen")
    parser.add_argument("--write", action="store_true", help="write the expected-failures files anew")
    parser.add_argument("--keep", type=Path, help="where results and logs are to stay")
    parser.add_argument("--expected", type=Path, default=HERE / "expected", help="the expected-failures files")
    parser.add_argument("--server-command", default=SERVER)
    parser.add_argument("--client-command", default=CLIENT)
    parser.add_argument("-v", "--verbose", action="store_true", help="show every check")
    return parser.parse_args()


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    chosen = _arguments()
    known = tomllib.loads((HERE / "legs.toml").read_text())
    keep: Path = (chosen.keep or Path(tempfile.mkdtemp(prefix="conformance-"))).resolve()
    client = [sys.executable, "-S", str(HERE / "one_client.py"), *shlex.split(chosen.client_command)]
    suite = Suite(
        install(frozenset(("node",))).conformance,
        shlex.split(chosen.server_command),
        client,
        frozenset(known["free_exits"]),
    )
    legs = [leg for leg in known["leg"] if not chosen.leg or leg["name"] in chosen.leg]
    legs = [leg for leg in legs if not chosen.side or leg["name"].startswith(chosen.side)]
    begin = time.monotonic()
    good = sum(_run_leg(suite, leg["name"], leg["options"], keep, chosen) for leg in legs)
    print(f"conformance: {good} of {len(legs)} legs as expected, {time.monotonic() - begin:.0f} s; results: {keep}")
    return 0 if legs and good == len(legs) else 1


if __name__ == "__main__":
    sys.exit(main())
