-- Who may call, and who did what.

-- name: write_audit_entry shard-local
-- $1 at, $2 guid, $3 shard, $4 count, $5 verb, $6 actor, $7 id, $8 face
INSERT INTO /*schema*/audit (at, guid, shard_id, count, verb, actor, id, face)
VALUES ($1::timestamptz, $2::uuid, $3::int, $4::int, $5::text, $6::text, $7::text, $8::text);

-- name: list_audit global
-- $1 actor or null, $2 id or null, $3 before or null, $4 limit. A CHECK would cost every change; a time
-- that no program can hold is shown as the last or the first that it can.
SELECT
    LEAST(GREATEST(e.at, '0001-01-01 00:00+00'), '9999-12-31 23:59:59.999999+00') AS at,
    e.actor, e.verb, e.id, e.guid, e.count, e.face
FROM /*schema*/audit AS e
WHERE ($1::text IS NULL OR e.actor = $1::text)
  AND ($2::text IS NULL OR e.id = $2::text)
  AND ($3::timestamptz IS NULL OR e.at < $3::timestamptz)
ORDER BY e.at DESC, e.guid DESC
LIMIT $4::int;

-- name: change_lock_tokens global
-- One change of tokens at a time, until the end of the transaction: they are rare.
UPDATE /*schema*/installation AS i SET floor = i.floor;

-- name: create_token global
-- $1 id, $2 digest, $3 name, $4 scopes, $5 lifetime or null, $6 rate, $7 live_max
INSERT INTO /*schema*/token (
    token_id, created_at, expires_at, revoked_at, rate, live_max, digest, name, scopes
)
VALUES (
    $1::uuid, statement_timestamp(), statement_timestamp() + $5::interval, NULL,
    $6::double precision, $7::int, $2::bytea, $3::text, $4::text[]
)
RETURNING token_id, digest, name, scopes, created_at, expires_at, revoked_at, rate, live_max;

-- name: change_valid_tokens global
-- The valid tokens of a name, newest first.
-- $1 name
SELECT t.token_id
FROM /*schema*/token AS t
WHERE t.name = $1::text AND t.revoked_at IS NULL
  AND (t.expires_at IS NULL OR t.expires_at > statement_timestamp())
ORDER BY t.created_at DESC, t.token_id DESC;

-- name: rotate_shorten global
-- $1 id, $2 how long it is still valid
UPDATE /*schema*/token AS t
SET expires_at = least(t.expires_at, statement_timestamp() + $2::interval)
WHERE t.token_id = $1::uuid;

-- name: revoke_tokens global
-- $1 ids
UPDATE /*schema*/token AS t
SET revoked_at = statement_timestamp()
WHERE t.token_id = ANY ($1::uuid[]);

-- name: list_tokens global
SELECT t.token_id, t.digest, t.name, t.scopes, t.created_at, t.expires_at, t.revoked_at, t.rate,
       t.live_max
FROM /*schema*/token AS t
ORDER BY t.name, t.created_at, t.token_id;

-- name: find_token global
-- $1 digest
SELECT t.token_id, t.digest, t.name, t.scopes, t.created_at, t.expires_at, t.revoked_at, t.rate,
       t.live_max
FROM /*schema*/token AS t
WHERE t.digest = $1::bytea AND t.revoked_at IS NULL
  AND (t.expires_at IS NULL OR t.expires_at > statement_timestamp());

-- name: has_any_token global
SELECT EXISTS (SELECT 1 FROM /*schema*/token) AS found;

-- name: count_live_actions global
-- $1 name, $2 limit
SELECT count(*)
FROM (
    SELECT 1 FROM /*schema*/scheduled_action AS a WHERE a.creator = $1::text LIMIT $2::int
) AS counted;

-- name: write_audit shard-local
-- An entry for a change that is made elsewhere.
-- $1 guid, $2 verb, $3 actor, $4 id, $5 face
INSERT INTO /*schema*/audit (at, guid, shard_id, count, verb, actor, id, face)
VALUES (statement_timestamp(), $1::uuid, 0, 1, $2::text, $3::text, $4::text, $5::text);
