-- How far running attempts are.

-- name: report
-- Of those that run; one whose action was replaced runs, too, but nobody looks at it any more.
INSERT INTO attempt_progress (id, attempt_id, at, fraction, said)
SELECT :id, q.attempt_id, :now, :fraction, :said
FROM processing_queue AS q
WHERE q.guid = :guid AND q.attempt_id = :attempt_id AND q.running = 1
    AND EXISTS (SELECT 1 FROM scheduled_action AS a WHERE a.id = :id AND a.guid = :guid)
ON CONFLICT (id) DO UPDATE SET
    attempt_id = excluded.attempt_id, at = excluded.at, fraction = excluded.fraction,
    said = excluded.said;

-- name: forget_reports
DELETE FROM attempt_progress WHERE id = :id AND attempt_id = :attempt_id;
