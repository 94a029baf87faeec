-- What connections themselves need; no verb of a role.

-- name: join_transaction
-- Makes SQLAlchemy begin the caller's transaction, before we use its driver's connection directly.
SELECT 1;
