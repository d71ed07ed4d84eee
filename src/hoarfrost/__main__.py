"""``python -m hoarfrost`` and the command ``hoarfrost``."""

import signal
import sys


def main() -> int:
    """Runs the command line. Ctrl-C has one answer, also while modules are being imported and while Python ends."""
    try:
        from hoarfrost.cli import main as run

        code = run()
    except KeyboardInterrupt:
        print("\nhoarfrost: interrupted", file=sys.stderr)
        code = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: what is left is to leave
    return code


if __name__ == "__main__":
    sys.exit(main())
