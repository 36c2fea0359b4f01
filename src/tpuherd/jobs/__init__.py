"""Operations on jobs: submit, change, remove, query. Shared by the commands and the Python API."""
