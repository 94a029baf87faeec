-- Programs and the actions they declare.

-- name: declare_set
SELECT set_no, fingerprint, known, seen_at FROM program WHERE name = :program;

-- name: declare_set_put
INSERT INTO program (name, set_no, fingerprint, known, seen_at)
VALUES (:program, :set_no, :fingerprint, :known, :seen_at)
ON CONFLICT (name) DO UPDATE SET
    set_no = :set_no, fingerprint = :fingerprint, known = :known, seen_at = :seen_at;

-- name: list_declared
SELECT id, program, set_no, fingerprint, is_removed, paused_as
FROM declared_action
WHERE program = :program
ORDER BY id;

-- name: note_get
SELECT
    d.id, d.program, d.set_no, d.fingerprint, d.is_removed, d.paused_as,
    p.fingerprint AS set_fingerprint, p.seen_at
FROM declared_action AS d
LEFT JOIN program AS p ON p.name = d.program
WHERE d.id = :id;

-- name: note_put
INSERT INTO declared_action (id, program, set_no, fingerprint, is_removed, paused_as)
VALUES (:id, :program, :set_no, :fingerprint, :is_removed, :paused_as)
ON CONFLICT (id) DO UPDATE SET
    program = :program, set_no = :set_no, fingerprint = :fingerprint, is_removed = :is_removed,
    paused_as = :paused_as;

-- name: note_drop
DELETE FROM declared_action WHERE id = :id;

-- name: declare_action_revise
-- A new generation whose counters go on. What stays paused keeps its terms.
UPDATE scheduled_action SET
    guid = :guid, state = :state, queue = :queue, priority = :priority, timeout_us = :timeout_us,
    retention_us = :retention_us, keyed = 0, updated_at = :now, scheduled_at = :scheduled_at,
    occurrence_no = :occurrence_no, occurrence_at = :occurrence_at, expires_at = :expires_at,
    occurrence_failures = :occurrence_failures, series = coalesce(series, guid),
    reason = CASE WHEN :state = 'paused' THEN reason END,
    paused_until = CASE WHEN :state = 'paused' THEN paused_until END, spec = :spec
WHERE id = :id;

-- name: serve_functions
INSERT INTO function_set (program, fingerprint, functions, began_at, seen_at)
VALUES (:program, :fingerprint, :functions, :now, :now)
ON CONFLICT (program, fingerprint) DO UPDATE SET seen_at = excluded.seen_at;

-- name: serve_functions_forget
DELETE FROM function_set WHERE seen_at < :silent_since;

-- name: list_functions
SELECT program, functions, began_at
FROM function_set
WHERE seen_at > :silent_since
ORDER BY seen_at DESC, program, fingerprint
LIMIT :limit;
