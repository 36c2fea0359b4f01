# A virtual environment on each host.
make_venv "$HOME/.levanter/venv"
