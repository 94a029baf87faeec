-- What the connections themselves need; no verb of a role.

-- name: has_citus global
SELECT EXISTS (SELECT 1 FROM pg_extension AS e WHERE e.extname = 'citus') AS found;

-- name: shard_count global
SELECT i.shard_count FROM /*schema*/installation AS i;

-- name: limit_statement global
-- Bounds the statements of this transaction; unlike lock_timeout it also holds on Citus.
-- $1 milliseconds as text
SELECT set_config('statement_timeout', $1::text, true);

-- name: limit_lock global
-- How long the statements of this transaction may wait for a row that somebody holds.
-- $1 milliseconds as text
SELECT set_config('lock_timeout', $1::text, true);

-- name: join_transaction global
-- Makes SQLAlchemy begin the caller's transaction, before we use its driver's connection directly.
SELECT 1;

-- name: find_installation global
-- Whether a caller's connection leads to a database with such an installation. It never fails.
-- $1 the table
SELECT to_regclass($1::text) IS NOT NULL AS is_here;

-- name: installation_id global
-- Whether that is the store's own.
SELECT i.id FROM /*schema*/installation AS i;

-- name: notify global
-- A hint, outside any data transaction: its commit lock is database-wide.
-- $1 channel, $2 payload
SELECT pg_notify($1::text, $2::text);
