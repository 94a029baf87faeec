-- Who may call, and who did what.

-- name: write_audit_entry
INSERT INTO audit (at, guid, count, verb, actor, id, face)
VALUES (:at, :guid, :count, :verb, :actor, :id, :face);

-- name: list_audit
SELECT at, actor, verb, id, guid, count, face
FROM audit
WHERE (:actor IS NULL OR actor = :actor)
    AND (:id IS NULL OR id = :id)
    AND (:before IS NULL OR at < :before)
ORDER BY entry_no DESC
LIMIT :limit;

-- name: create_token
INSERT INTO token (token_id, digest, name, scopes, created_at, expires_at, rate, live_max)
VALUES (:token_id, :digest, :name, :scopes, :now, :expires_at, :rate, :live_max)
RETURNING *;

-- name: change_valid_tokens
-- The valid tokens of a name, newest first.
SELECT token_id FROM token
WHERE name = :name AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
ORDER BY created_at DESC, token_id DESC;

-- name: rotate_shorten
UPDATE token SET expires_at = min(coalesce(expires_at, :ends_at), :ends_at)
WHERE token_id = :token_id;

-- name: revoke_token
UPDATE token SET revoked_at = :now WHERE token_id = :token_id;

-- name: list_tokens
SELECT token_id, digest, name, scopes, created_at, expires_at, revoked_at, rate, live_max
FROM token
ORDER BY name, created_at, token_id;

-- name: find_token
SELECT token_id, digest, name, scopes, created_at, expires_at, revoked_at, rate, live_max
FROM token
WHERE digest = :digest AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now);

-- name: has_any_token
SELECT EXISTS (SELECT 1 FROM token) AS found;

-- name: count_live_actions
SELECT count(*) AS count
FROM (SELECT 1 FROM scheduled_action WHERE creator = :name LIMIT :limit);
