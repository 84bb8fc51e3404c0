"""The Tile IR: frozen data that says what the author means. See `dtypes`, `expr`, `tile` and `kernel`."""
