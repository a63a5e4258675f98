"""``python -m tidybert`` is the command ``tidybert``."""

from tidybert.cli.main import main

if __name__ == "__main__":
    main()
