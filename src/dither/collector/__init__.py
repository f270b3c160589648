"""The server: campaigns, rounds, tokens, stores (SQLite, PostgreSQL) and the HTTP API. Needs the extra `server`."""
