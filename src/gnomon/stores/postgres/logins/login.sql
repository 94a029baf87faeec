-- The set-up of logins by an administrator, statement by statement. The marks are quoted names and
-- values: DDL takes no parameters.

-- name: look_at_role
SELECT
    r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication OR r.rolbypassrls,
    EXISTS (SELECT FROM pg_catalog.pg_auth_members AS m WHERE m.member = r.oid)
FROM pg_catalog.pg_roles AS r
WHERE r.rolname = $1;

-- name: look_at_server
SELECT
    current_setting('server_version_num')::int,
    (SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user);

-- name: create_login
CREATE ROLE /*role*/ NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS NOINHERIT;

-- name: bound_login
ALTER ROLE /*role*/ LOGIN CONNECTION LIMIT /*value*/;

-- name: set_password
ALTER ROLE /*role*/ PASSWORD /*value*/;

-- name: set_default
ALTER ROLE /*role*/ IN DATABASE /*database*/ SET /*setting*/ TO /*value*/;

-- name: grant_schema
GRANT USAGE ON SCHEMA /*schema*/ TO /*role*/;

-- name: grant_effects
GRANT EXECUTE ON FUNCTION /*schema*/.finish_ok(text, uuid, uuid, bigint), /*schema*/.effect_done(text, uuid, bigint) TO /*role*/;

-- name: name_login
-- Whose effects it may note as done.
INSERT INTO /*schema*/.target_login (target, role) VALUES (/*target*/, /*value*/) ON CONFLICT DO NOTHING;

-- name: create_inbox
CREATE TABLE IF NOT EXISTS /*inbox*/ (key text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());

-- name: grant_inbox
GRANT INSERT, SELECT ON /*inbox*/ TO /*role*/;

-- name: grant_sql
-- The way in: let a role schedule, cancel and look.
SELECT /*schema*/.grant_sql($1);
