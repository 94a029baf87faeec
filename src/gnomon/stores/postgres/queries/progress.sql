-- How far running attempts are.

-- name: report shard-local
-- Of those that run, in the processing queue or in their incoming row.
-- $1 shards, $2 ids, $3 guids, $4 attempts, $5 fractions, $6 texts
INSERT INTO /*schema*/attempt_progress AS p (shard_id, id, attempt_id, at, fraction, said)
SELECT a.shard_id, a.id, u.attempt_id, statement_timestamp(), u.fraction, u.said
FROM unnest(
    $1::int[], $2::text[], $3::uuid[], $4::uuid[], $5::float8[], $6::text[]
) AS u (shard_id, id, guid, attempt_id, fraction, said)
JOIN /*schema*/scheduled_action AS a
    ON a.shard_id = u.shard_id AND a.id = u.id AND a.guid = u.guid
WHERE (
    EXISTS (
        SELECT 1 FROM /*schema*/processing_queue AS q
        WHERE q.guid = a.guid AND q.attempt_id = u.attempt_id AND q.running
          AND q.shard_id = a.shard_id /*one-shard: AND q.shard_id = $7*/
    )
    OR EXISTS (
        SELECT 1 FROM /*schema*/incoming_queue AS i
        WHERE i.shard_id = a.shard_id AND i.created_at = a.updated_at AND i.guid = a.guid
          AND i.attempt_id = u.attempt_id /*one-shard: AND i.shard_id = $7*/
    )
) /*one-shard: AND a.shard_id = $7*/
ORDER BY a.shard_id, a.id
ON CONFLICT (shard_id, id) DO UPDATE
SET attempt_id = excluded.attempt_id, at = excluded.at, fraction = excluded.fraction,
    said = excluded.said
RETURNING p.attempt_id;

-- name: forget_reports shard-local
-- $1 shards, $2 ids, $3 attempts
DELETE FROM /*schema*/attempt_progress AS p
USING unnest($1::int[], $2::text[], $3::uuid[]) AS u (shard_id, id, attempt_id)
WHERE p.shard_id = u.shard_id AND p.id = u.id AND p.attempt_id = u.attempt_id
  /*one-shard: AND p.shard_id = $4*/;
