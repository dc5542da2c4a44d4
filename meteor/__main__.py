"""`python -m meteor` is the `meteor` command."""

from meteor.cli.main import main

if __name__ == "__main__":
    main()
