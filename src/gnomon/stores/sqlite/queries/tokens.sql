-- Who may call, and who did what.

-- name: audit
INSERT INTO audit (at, guid, count, verb, actor, id)
VALUES (:at, :guid, :count, :verb, :actor, :id);

-- name: audit_entries
SELECT at, actor, verb, id, guid, count
FROM audit
WHERE (:actor IS NULL OR actor = :actor)
    AND (:id IS NULL OR id = :id)
    AND (:before IS NULL OR at < :before)
ORDER BY entry_no DESC
LIMIT :limit;

-- name: purge_audit
-- It is written in order of time, so what is old stands at its head.
DELETE FROM audit
WHERE at < :audited_before AND entry_no IN (
    SELECT entry_no FROM audit ORDER BY entry_no LIMIT :limit
);

-- name: create_token
INSERT INTO token (token_id, digest, name, scopes, created_at, expires_at, rate, live_max)
VALUES (:token_id, :digest, :name, :scopes, :now, :expires_at, :rate, :live_max);

-- name: valid_tokens
-- The valid tokens of a name, newest first.
SELECT token_id FROM token
WHERE name = :name AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
ORDER BY created_at DESC, token_id DESC;

-- name: shorten_token
UPDATE token SET expires_at = min(coalesce(expires_at, :ends_at), :ends_at)
WHERE token_id = :token_id;

-- name: revoke_token
UPDATE token SET revoked_at = :now WHERE token_id = :token_id;

-- name: tokens
SELECT token_id, digest, name, scopes, created_at, expires_at, revoked_at, rate, live_max
FROM token
ORDER BY name, created_at, token_id;

-- name: find_token
SELECT token_id, digest, name, scopes, created_at, expires_at, revoked_at, rate, live_max
FROM token
WHERE digest = :digest AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now);

-- name: any_token
SELECT EXISTS (SELECT 1 FROM token);

-- name: live_count
SELECT count(*) FROM (SELECT 1 FROM scheduled_action WHERE creator = :name LIMIT :limit);
