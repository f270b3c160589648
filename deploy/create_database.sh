#!/bin/sh
# Creates the collector's role and database. Run it once as the superuser of PostgreSQL 15 or later:
#
#   runuser -u postgres -- sh < deploy/create_database.sh
#
# The database of deploy/compose.yaml runs it at its first start. The role owns its database
# and has no right to make roles or other databases, to replicate, or to read the server's files.
# DATABASE_PASSWORD_FILE names a file with the role's password. Without it the role has none and
# can log in only as the system's user `dither` through the local socket.
set -eu

# psql reads the password from the environment: other users can see a command's arguments.
unset DITHER_PASSWORD
if [ -n "${DATABASE_PASSWORD_FILE:-}" ]; then
  DITHER_PASSWORD=$(cat "$DATABASE_PASSWORD_FILE")
  if [ -z "$DITHER_PASSWORD" ]; then
    echo "$DATABASE_PASSWORD_FILE is empty; write the role's password into it" >&2
    exit 1
  fi
  export DITHER_PASSWORD
fi

psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --username="${POSTGRES_USER:-postgres}" --dbname=postgres <<'SQL'
\getenv password DITHER_PASSWORD
CREATE ROLE dither LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;
\if :{?password}
ALTER ROLE dither PASSWORD :'password';
\endif
CREATE DATABASE dither OWNER dither;
REVOKE ALL ON DATABASE dither FROM PUBLIC;
SQL
