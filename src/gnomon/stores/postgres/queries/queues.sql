-- Queues and states of stages: what the owner of a shard does. See entities.sql about locks,
-- actions.sql about `one-shard:`, and work.sql about plans.

-- name: commit_entity shard-local
-- Saves of stages of what is locked; without a document they are only counted.
-- $1 row ids, $2 documents, $3 how many versions, $4 how many saves, $5 the present
UPDATE /*schema*/entity AS e
SET version = e.version + u.versions, doc = coalesce(u.doc, e.doc),
    changed_at = CASE WHEN u.doc IS NULL THEN e.changed_at ELSE $5::timestamptz END,
    saves = e.saves + u.saves
FROM unnest($1::tid[], $2::text[], $3::int[], $4::int[]) AS u (row_id, doc, versions, saves)
WHERE e.ctid = u.row_id /*one-shard: AND e.shard_id = $6*/;

-- name: row_remove shard-local
-- Queue rows that are locked.
-- $1 row ids
DELETE FROM /*schema*/stage_queue AS q
WHERE q.ctid = ANY ($1::tid[]) /*one-shard: AND q.shard_id = $2*/;

-- name: rows shard-local
-- $1 shard, $2 key
SELECT q.entity_key, q.stage, q.lane, q.status, q.ready_at, q.timer_at, q.first_at, q.seq, q.attempts,
       q.reasons, q.root, q.depth, q.error, q.note
FROM /*schema*/stage_queue AS q
WHERE q.shard_id = $1::int AND q.entity_key = $2::text
ORDER BY q.stage;

-- name: parked global
-- $1 after this entity, $2 and this stage of it, $3 below this entity, $4 stage (NULL: all), $5 limit
SELECT q.entity_key, q.stage, q.lane, q.status, q.ready_at, q.timer_at, q.first_at, q.seq, q.attempts,
       q.reasons, q.root, q.depth, q.error, q.note
FROM /*schema*/stage_queue AS q
WHERE q.status IN ('quarantined', 'looping') AND (q.entity_key, q.stage) > ($1::text, $2::text)
  AND q.entity_key < $3::text AND ($4::text IS NULL OR q.stage = $4::text)
ORDER BY q.entity_key, q.stage
LIMIT $5::int;

-- name: release_rows shard-local
-- Parked rows of an entity, which is locked, freed by hand.
-- $1 shard, $2 key, $3 stage (NULL: all), $4 root, $5 reasons kept
UPDATE /*schema*/stage_queue AS q
SET status = 'ready', lane = 0, ready_at = statement_timestamp(), first_at = statement_timestamp(),
    seq = q.seq + 1, attempts = 0, depth = 0, root = $4::uuid,
    reasons = coalesce((array_remove(q.reasons, 'by hand') || 'by hand'::text)[
        greatest(cardinality(array_remove(q.reasons, 'by hand')) + 2 - $5::int, 1):], '{}')
WHERE q.shard_id = $1::int AND q.entity_key = $2::text AND ($3::text IS NULL OR q.stage = $3::text)
  AND q.status IN ('quarantined', 'looping')
RETURNING q.stage;

-- name: claim_lock shard-local
-- Lock entities and their claimed rows, with what decides about them: whether the lease is still held,
-- and the state's version. Of an entity that somebody else has locked (`is_locked`) nothing is waited for.
-- If one was written just now (`moved`), these are of the time before: then the caller asks again. Whoever
-- changes a state counts a save, so that it shows.
-- $1 shards, $2 lease guids, $3 keys, $4 stages
SELECT
    e.row_id AS entity_row, e.epoch, e.version, e.lives, e.row_id <> o.row_id AS moved,
    o.row_id IS NOT NULL AND e.row_id IS NULL AS is_locked,
    l.held IS NOT NULL AS held, s.version AS state_version, q.row_id AS queue_row, q.seq, q.status,
    q.timer_at, q.attempts, statement_timestamp() AS now,
    EXISTS (SELECT 1 FROM /*schema*/stage AS n WHERE n.name = '') AS has_relay
FROM unnest($1::int[], $2::uuid[], $3::text[], $4::text[])
    WITH ORDINALITY AS u (shard_id, lease_guid, entity_key, stage, place)
LEFT JOIN LATERAL (
    SELECT n.ctid AS row_id
    FROM /*schema*/entity AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $5*/
    LIMIT 1
) AS o ON true
LEFT JOIN LATERAL (
    SELECT n.ctid AS row_id, n.epoch, n.version, n.doc IS NOT NULL AS lives
    FROM /*schema*/entity AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $5*/
    LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED
) AS e ON true
LEFT JOIN LATERAL (
    SELECT true AS held
    FROM /*schema*/shard_lock AS n
    WHERE n.shard_id = u.shard_id AND n.lease_guid = u.lease_guid
      /*one-shard: AND n.shard_id = $5*/
    LIMIT 1
) AS l ON true
LEFT JOIN LATERAL (
    SELECT n.version
    FROM /*schema*/stage_state AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key AND n.stage = u.stage
      /*one-shard: AND n.shard_id = $5*/
    LIMIT 1
) AS s ON true
LEFT JOIN LATERAL (
    SELECT n.ctid AS row_id, n.seq, n.status, n.timer_at, n.attempts
    FROM /*schema*/stage_queue AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key AND n.stage = u.stage
      AND e.row_id IS NOT NULL /*one-shard: AND n.shard_id = $5*/
    LIMIT 1
    FOR UPDATE
) AS q ON true
ORDER BY u.place;

-- name: commit_plain many-shards
-- Commits in one statement: entities are locked first, also those that do not change, for whoever writes
-- queue rows without that lock and then asks for it may wait for somebody who waits for the row. An entity
-- that somebody has locked is not waited for. Everything is compared as this statement sees it, and
-- written by ctid, so that a row that somebody else has written meanwhile is left alone (older servers
-- follow it to its new version: so a timer that fired is seen by its `seq`). For an entity
-- that means that the commit is not done: the caller decides about it with claim_lock. A claimed
-- row that is left alone has another `seq` by now; the caller settles it. Whoever changes an entity or
-- a state of it writes the entity's row, so that none of it is missed. What changes neither may as well
-- have been earlier. An offer that finds a row is not made. Gives one row: the places of what was saved
-- (NULL: nothing), how many of the claimed rows were settled, the entities of the rows that were made, with
-- the `seq` and `first_at` of all of these. Of what further stages made in the same pass the versions with their notes are written here, and their states
-- are compared; the rest is the caller's.
-- $1 shards, $2 lease guids, $3 keys, $4 stages, $5 seqs, $6 epochs, $7 versions, $8 state versions,
-- $9 documents (NULL: unchanged), $10 paths, $11 roots, $12 depths, $13 whether the timer is set,
-- $14 timers, $15 notes, $16 whether what goes out of it comes later, $17 for the stage itself,
-- $18 revisions, $19 types, $20 states (NULL: unchanged), $21 stages and $22 reasons of offers (NULL:
-- none), $23 versions and $24 saves of further stages (NULL: none); of these, one to a line: $25 names,
-- $26 state versions, $27 how many versions come up to theirs (empty: none of theirs), $28 paths,
-- $29 depths. A place of an array costs the client more than it costs the server: what is the same for
-- all is told once, in the first place ($4, $6, $7, $10, $11, $12, $21, $22; there an empty text is
-- none), and leases once for a shard. Each of them is another guid, and no shard has two of them here.
WITH relay AS MATERIALIZED (
    SELECT EXISTS (SELECT 1 FROM /*schema*/stage AS n WHERE n.name = '') AS is_known
), want AS MATERIALIZED (
    SELECT
        u.*, e.row_id, q.row_id AS queue_row, u.doc IS NOT NULL OR u.body IS NOT NULL AS counts,
        CASE WHEN u.sets_timer THEN u.wake ELSE q.timer_at END AS timer_at
    FROM (
        SELECT
            a.shard_id, a.entity_key, coalesce(a.stage, ($4::text[])[1]) AS stage, a.seq,
            coalesce(a.epoch, ($6::bigint[])[1]) AS epoch,
            coalesce(a.version, ($7::bigint[])[1]) AS version, a.state_version, a.doc,
            coalesce(a.paths, ($10::text[])[1]) AS paths, coalesce(a.root, ($11::uuid[])[1]) AS root,
            coalesce(a.depth, ($12::int[])[1]) AS depth, a.sets_timer, a.wake, a.note, a.is_later,
            a.for_stage, a.revision, a.type, a.body,
            nullif(coalesce(a.next_stage, ($21::text[])[1]), '') AS next_stage,
            coalesce(a.reason, ($22::text[])[1]) AS reason, a.more_versions, a.more_saves,
            a.then_stages, a.then_states, a.then_later, a.then_paths, a.then_depths, a.place
        FROM unnest(
            $1::int[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::text[], $10::text[], $11::uuid[], $12::int[], $13::boolean[],
            $14::timestamptz[], $15::text[], $16::boolean[], $17::boolean[], $18::int[],
            $19::text[], $20::bytea[], $21::text[], $22::text[], $23::int[], $24::int[],
            $25::text[], $26::text[], $27::text[], $28::text[], $29::text[]
        ) WITH ORDINALITY AS a (
            shard_id, entity_key, stage, seq, epoch, version, state_version, doc, paths, root, depth,
            sets_timer, wake, note, is_later, for_stage, revision, type, body, next_stage,
            reason, more_versions, more_saves, then_stages, then_states, then_later, then_paths,
            then_depths, place
        )
    ) AS u
    CROSS JOIN LATERAL (
        SELECT n.shard_id
        FROM /*schema*/shard_lock AS n
        WHERE n.shard_id = u.shard_id AND n.lease_guid = ANY ($2::uuid[])
        LIMIT 1
    ) AS held
    CROSS JOIN LATERAL (
        SELECT n.ctid AS row_id
        FROM /*schema*/entity AS n
        WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key AND n.epoch = u.epoch
          AND n.version = u.version AND n.doc IS NOT NULL
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS e
    CROSS JOIN LATERAL (
        SELECT n.ctid AS row_id, n.timer_at
        FROM /*schema*/stage_queue AS n
        WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key AND n.stage = u.stage AND n.seq = u.seq
        LIMIT 1
    ) AS q
    LEFT JOIN LATERAL (
        SELECT n.version
        FROM /*schema*/stage_state AS n
        WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key AND n.stage = u.stage
        LIMIT 1
    ) AS s ON true
    WHERE coalesce(s.version, 0) = coalesce(u.state_version, 0)
      AND (u.then_stages IS NULL OR NOT EXISTS (
          SELECT 1 FROM unnest(
              string_to_array(u.then_stages, E'\n'), string_to_array(u.then_states, E'\n')::bigint[]
          ) AS f (stage, version)
          LEFT JOIN LATERAL (
              SELECT n.version
              FROM /*schema*/stage_state AS n
              WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key AND n.stage = f.stage
              LIMIT 1
          ) AS t ON true
          WHERE coalesce(t.version, 0) <> f.version
          OFFSET 0
      ))
), saved AS (
    UPDATE /*schema*/entity AS e
    SET version = e.version + (w.doc IS NOT NULL)::int + coalesce(w.more_versions, 0),
        doc = coalesce(w.doc, e.doc),
        changed_at = CASE WHEN w.doc IS NULL THEN e.changed_at ELSE statement_timestamp() END,
        saves = e.saves + 1 + coalesce(w.more_saves, 0)
    FROM want AS w
    WHERE e.ctid = w.row_id AND w.counts
    RETURNING
        w.place, w.queue_row, w.seq, w.timer_at, w.note, e.shard_id, e.entity_key, e.epoch,
        e.version - coalesce(w.more_versions, 0) AS version, e.saves,
        e.doc, w.doc IS NOT NULL AS is_new, w.stage, w.state_version, w.paths, w.root, w.depth,
        w.is_later, w.for_stage, w.revision, w.type, w.body, w.next_stage, w.reason,
        w.then_stages, w.then_later, w.then_paths, w.then_depths
), done AS MATERIALIZED (
    SELECT s.place, s.queue_row, s.seq, s.timer_at, s.note FROM saved AS s
    UNION ALL
    SELECT w.place, w.queue_row, w.seq, w.timer_at, w.note FROM want AS w WHERE NOT w.counts
), removed AS (
    DELETE FROM /*schema*/stage_queue AS q
    USING done AS d
    WHERE q.ctid = d.queue_row AND q.seq = d.seq AND d.timer_at IS NULL
    RETURNING d.place
), asleep AS (
    UPDATE /*schema*/stage_queue AS q
    SET status = 'sleeping', ready_at = NULL, timer_at = d.timer_at, attempts = 0, error = NULL,
        reasons = '{}', note = coalesce(d.note, q.note)
    FROM done AS d
    WHERE q.ctid = d.queue_row AND q.seq = d.seq AND d.timer_at IS NOT NULL
    RETURNING d.place
), noted AS (
    INSERT INTO /*schema*/entity_change
        (shard_id, entity_key, epoch, version, paths, author, root, depth, at)
    SELECT s.shard_id, s.entity_key, s.epoch, s.version, s.paths, 'stage:' || s.stage, s.root, s.depth,
           statement_timestamp()
    FROM saved AS s
    WHERE s.is_new
    UNION ALL
    SELECT s.shard_id, s.entity_key, s.epoch, s.version + f.later, f.paths, 'stage:' || f.stage, s.root,
           f.depth, statement_timestamp()
    FROM saved AS s
    CROSS JOIN LATERAL unnest(
        string_to_array(s.then_stages, E'\n'), string_to_array(s.then_later, E'\n', '')::int[],
        string_to_array(s.then_paths, E'\n'), string_to_array(s.then_depths, E'\n')::int[]
    ) AS f (stage, later, paths, depth)
    WHERE s.then_stages IS NOT NULL AND f.later IS NOT NULL
), stated AS (
    INSERT INTO /*schema*/stage_state (shard_id, entity_key, stage, version, revision, type, body)
    SELECT s.shard_id, s.entity_key, s.stage, coalesce(s.state_version, 0) + 1, s.revision, s.type, s.body
    FROM saved AS s
    WHERE s.body IS NOT NULL
    ON CONFLICT (shard_id, entity_key, stage) DO UPDATE
    SET version = excluded.version, revision = excluded.revision, type = excluded.type,
        body = excluded.body
), offered AS (
    INSERT INTO /*schema*/stage_queue AS q (
        shard_id, entity_key, stage, lane, status, ready_at, first_at, seq, attempts, reasons, root,
        depth
    )
    SELECT
        s.shard_id, s.entity_key, s.next_stage, 0, 'ready', statement_timestamp(), statement_timestamp(),
        (date_part('epoch', statement_timestamp()) * 1000000)::bigint, 0, ARRAY[s.reason], s.root,
        s.depth
    FROM saved AS s
    WHERE s.next_stage IS NOT NULL
    ON CONFLICT (shard_id, entity_key, stage) DO NOTHING
    RETURNING q.entity_key
), published AS (
    INSERT INTO /*schema*/stage_outbox (
        shard_id, entity_key, sink, n, epoch, version, author, root, paths, key, doc, state_version,
        state_revision, state_type, state_body, attempts, at, ready_at
    )
    SELECT
        s.shard_id, s.entity_key, k.sink, s.saves, s.epoch, s.version, 'stage:' || s.stage, s.root, s.paths,
        s.entity_key || '/' || s.epoch || '.' || s.version
            || CASE WHEN s.body IS NULL THEN '' ELSE '/' || s.stage || '.' || t.version END,
        s.doc, t.version, t.revision, t.type, t.body, 0, statement_timestamp(),
        CASE WHEN b.is_parked THEN NULL ELSE greatest(statement_timestamp(), b.ready_at) END
    FROM saved AS s
    CROSS JOIN LATERAL (
        SELECT '' AS sink
        WHERE (SELECT r.is_known FROM relay AS r)
        UNION ALL
        SELECT s.stage WHERE s.for_stage
    ) AS k
    LEFT JOIN LATERAL (
        SELECT coalesce(s.state_version, 0) + 1 AS version, s.revision, s.type, s.body
        WHERE s.body IS NOT NULL
        UNION ALL
        SELECT n.version, n.revision, n.type, n.body
        FROM /*schema*/stage_state AS n
        WHERE n.shard_id = s.shard_id AND n.entity_key = s.entity_key AND n.stage = s.stage
          AND s.body IS NULL
        LIMIT 1
    ) AS t ON true
    LEFT JOIN LATERAL (
        SELECT n.ready_at, n.ready_at IS NULL AS is_parked
        FROM /*schema*/stage_outbox AS n
        WHERE n.shard_id = s.shard_id AND n.entity_key = s.entity_key AND n.sink = k.sink
        ORDER BY n.n DESC
        LIMIT 1
    ) AS b ON true
    WHERE s.is_later IS NULL AND (s.for_stage OR (SELECT r.is_known FROM relay AS r))
)
SELECT
    (SELECT array_agg(d.place::int) FROM done AS d) AS places,
    (SELECT count(*) FROM removed) + (SELECT count(*) FROM asleep) AS settled,
    (SELECT array_agg(o.entity_key) FROM offered AS o) AS made,
    (date_part('epoch', statement_timestamp()) * 1000000)::bigint AS seq,
    statement_timestamp() AS now, (SELECT r.is_known FROM relay AS r) AS has_relay;

-- name: route_held shard-local
-- Which leases are still held.
-- $1 shards, $2 lease guids
SELECT l.shard_id, l.lease_guid
FROM unnest($1::int[], $2::uuid[]) AS u (shard_id, lease_guid)
CROSS JOIN LATERAL (
    SELECT n.shard_id, n.lease_guid
    FROM /*schema*/shard_lock AS n
    WHERE n.shard_id = u.shard_id AND n.lease_guid = u.lease_guid
      /*one-shard: AND n.shard_id = $3*/
    LIMIT 1
) AS l;

-- name: row_update shard-local
-- What becomes of rows that are locked and stay. An error is kept until another one or a success.
-- $1 row ids, $2 statuses, $3 delays from now (NULL: as it was), $4 timers, $5 attempts, $6 errors,
-- $7 notes (NULL: as it was)
UPDATE /*schema*/stage_queue AS q
SET status = u.status, timer_at = u.timer_at, attempts = u.attempts,
    error = CASE WHEN u.attempts = 0 THEN u.error ELSE coalesce(u.error, q.error) END,
    note = coalesce(u.note, q.note),
    ready_at = CASE
        WHEN u.status <> 'ready' THEN NULL
        WHEN u.delay IS NULL THEN q.ready_at
        ELSE u.due_at
    END,
    reasons = CASE WHEN u.status = 'sleeping' THEN '{}' ELSE q.reasons END
FROM (
    SELECT g.*, statement_timestamp() + g.delay AS due_at
    FROM unnest(
        $1::tid[], $2::text[], $3::interval[], $4::timestamptz[], $5::int[], $6::text[], $7::text[]
    ) AS g (row_id, status, delay, timer_at, attempts, error, note)
    OFFSET 0
) AS u
WHERE q.ctid = u.row_id /*one-shard: AND q.shard_id = $8*/;

-- name: enqueue_ready shard-local
-- Put entities, which are locked and live, into queues, or merge the offer into the row that is
-- there: see `Offer`. `first_at` of what is offered is the present. See 0002 about `seq`. Gives the
-- rows, and which are new: those that nobody has locked before (`xmax`).
-- $1 shards, $2 keys, $3 stages, $4 lanes (NULL: main), $5 delays (NULL: none), $6 reasons, $7 roots,
-- $8 depths, $9 whether parked rows are freed, $10 floor in backoff, $11 debounce (0: at once), $12 how
-- long after it was first woken a row is moved on by that, $13 reasons kept. What is the same for all ($3, $6, $7,
-- $8) is told once: see commit_plain
INSERT INTO /*schema*/stage_queue AS q (
    shard_id, entity_key, stage, lane, status, ready_at, first_at, seq, attempts, reasons, root, depth
)
SELECT
    l.shard_id, u.entity_key, coalesce(u.stage, ($3::text[])[1]), coalesce(u.lane, 0), 'ready',
    statement_timestamp() + coalesce(u.delay, '0'), statement_timestamp(),
    (date_part('epoch', statement_timestamp()) * 1000000)::bigint, 0,
    ARRAY[coalesce(u.reason, ($6::text[])[1])], coalesce(u.root, ($7::uuid[])[1]),
    coalesce(u.depth, ($8::int[])[1])
FROM unnest(
    $1::int[], $2::text[], $3::text[], $4::smallint[], $5::interval[], $6::text[], $7::uuid[],
    $8::int[]
) AS u (shard_id, entity_key, stage, lane, delay, reason, root, depth)
JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id
WHERE true /*one-shard: AND l.shard_id = $14*/
ON CONFLICT (shard_id, entity_key, stage) DO UPDATE
SET status = 'ready', seq = q.seq + 1, root = excluded.root, depth = excluded.depth,
    reasons = coalesce((array_remove(q.reasons, excluded.reasons[1]) || excluded.reasons)[
        greatest(cardinality(array_remove(q.reasons, excluded.reasons[1])) + 2 - $13::int, 1):], '{}'),
    lane = CASE WHEN q.status = 'ready' THEN least(q.lane, excluded.lane) ELSE excluded.lane END,
    first_at = CASE WHEN q.status = 'ready' THEN q.first_at ELSE excluded.first_at END,
    attempts = CASE WHEN q.status = 'ready' THEN q.attempts ELSE 0 END,
    ready_at = CASE
        WHEN q.status <> 'ready' THEN excluded.ready_at
        ELSE greatest(
            least(q.ready_at, CASE
                WHEN q.attempts > 0 AND q.ready_at > excluded.first_at
                THEN greatest(excluded.ready_at, (excluded.first_at AT TIME ZONE 'UTC' + $10::interval) AT TIME ZONE 'UTC')
                ELSE excluded.ready_at
            END),
            CASE
                WHEN q.ready_at > excluded.first_at
                THEN least((excluded.first_at AT TIME ZONE 'UTC' + $11::interval) AT TIME ZONE 'UTC', (q.first_at AT TIME ZONE 'UTC' + $12::interval) AT TIME ZONE 'UTC')
            END,
            CASE WHEN excluded.lane < q.lane THEN excluded.first_at END
        )
    END
WHERE q.status IN ('sleeping', 'ready')
   OR ($9::boolean AND (q.status = 'quarantined' OR excluded.depth = 0))
RETURNING q.entity_key, q.stage, q.seq, q.first_at, q.xmax = 0 AS is_new;

-- name: enqueue_timer shard-local
-- Arm timers at the earlier of the two. Nothing else changes.
-- $1 shards, $2 keys, $3 stages, $4 timers, $5 roots, $6 depths
INSERT INTO /*schema*/stage_queue AS q (
    shard_id, entity_key, stage, lane, status, timer_at, first_at, seq, attempts, reasons, root, depth
)
SELECT
    l.shard_id, u.entity_key, u.stage, 0, 'sleeping', u.timer_at, statement_timestamp(),
    (date_part('epoch', statement_timestamp()) * 1000000)::bigint, 0, '{}', u.root, u.depth
FROM unnest($1::int[], $2::text[], $3::text[], $4::timestamptz[], $5::uuid[], $6::int[])
    AS u (shard_id, entity_key, stage, timer_at, root, depth)
JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id
WHERE true /*one-shard: AND l.shard_id = $7*/
ON CONFLICT (shard_id, entity_key, stage) DO UPDATE
SET timer_at = least(q.timer_at, excluded.timer_at)
WHERE q.timer_at IS NULL OR q.timer_at > excluded.timer_at;

-- name: enqueue_looping shard-local
-- Park rows with the proof of a loop, unless they are ready.
-- $1 shards, $2 keys, $3 stages, $4 lanes, $5 reasons, $6 roots, $7 depths, $8 proofs, $9 reasons kept
INSERT INTO /*schema*/stage_queue AS q (
    shard_id, entity_key, stage, lane, status, first_at, seq, attempts, reasons, root, depth, error
)
SELECT
    l.shard_id, u.entity_key, u.stage, u.lane, 'looping', statement_timestamp(),
    (date_part('epoch', statement_timestamp()) * 1000000)::bigint, 0, ARRAY[u.reason], u.root,
    u.depth, u.proof
FROM unnest(
    $1::int[], $2::text[], $3::text[], $4::smallint[], $5::text[], $6::uuid[], $7::int[], $8::text[]
) AS u (shard_id, entity_key, stage, lane, reason, root, depth, proof)
JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id
WHERE true /*one-shard: AND l.shard_id = $10*/
ON CONFLICT (shard_id, entity_key, stage) DO UPDATE
SET status = 'looping', error = excluded.error, seq = q.seq + 1, root = excluded.root,
    depth = excluded.depth,
    reasons = coalesce((array_remove(q.reasons, excluded.reasons[1]) || excluded.reasons)[
        greatest(cardinality(array_remove(q.reasons, excluded.reasons[1])) + 2 - $9::int, 1):], '{}')
WHERE q.status <> 'ready';

-- name: fire_timers shard-local
-- Timers that are due become ready rows, as an offer to the main lane would: see enqueue_ready. Who is
-- writing a row meanwhile is not waited for.
-- $1 shards, $2 lease guids, $3 limit, $4 limit per shard, $5 seed of the new roots,
-- $6 floor in backoff, $7 reasons kept
WITH due AS MATERIALIZED (
    SELECT t.row_id, statement_timestamp() AS now, statement_timestamp() + $6::interval AS floor_at
    FROM unnest($1::int[], $2::uuid[]) AS h (shard_id, lease_guid)
    CROSS JOIN LATERAL (
        SELECT n.shard_id
        FROM /*schema*/shard_lock AS n
        WHERE n.shard_id = h.shard_id AND n.lease_guid = h.lease_guid
          /*one-shard: AND n.shard_id = $8*/
        LIMIT 1
    ) AS held
    CROSS JOIN LATERAL (
        SELECT n.ctid AS row_id, n.timer_at
        FROM /*schema*/stage_queue AS n
        WHERE n.shard_id = h.shard_id AND n.timer_at <= statement_timestamp()
          AND n.status IN ('sleeping', 'ready') /*one-shard: AND n.shard_id = $8*/
        ORDER BY n.timer_at
        LIMIT $4::int
        FOR UPDATE SKIP LOCKED
    ) AS t
    ORDER BY t.timer_at
    LIMIT $3::int
)
UPDATE /*schema*/stage_queue AS q
SET status = 'ready', timer_at = NULL, lane = 0, seq = q.seq + 1, depth = 0,
    root = md5($5::uuid::text || q.entity_key || '/' || q.stage)::uuid,
    reasons = coalesce((array_remove(q.reasons, 'timer') || 'timer'::text)[
        greatest(cardinality(array_remove(q.reasons, 'timer')) + 2 - $7::int, 1):], '{}'),
    first_at = CASE WHEN q.status = 'ready' THEN q.first_at ELSE d.now END,
    attempts = CASE WHEN q.status = 'ready' THEN q.attempts ELSE 0 END,
    ready_at = CASE
        WHEN q.status <> 'ready' THEN d.now
        ELSE greatest(
            least(q.ready_at, CASE
                WHEN q.attempts > 0 AND q.ready_at > d.now THEN d.floor_at
                ELSE d.now
            END),
            CASE WHEN q.lane > 0 THEN d.now ELSE '-infinity' END
        )
    END
FROM due AS d
WHERE q.ctid = d.row_id /*one-shard: AND q.shard_id = $8*/
RETURNING q.shard_id;

-- name: lane_head shard-local
-- The first due rows of a lane, with the bytes of document and states, and of each shard the first that
-- is not due yet. Bytes are known without reading what they are of.
-- $1 shards, $2 stage, $3 lane, $4 limit, $5 limit per shard, $6 entities to leave out
SELECT
    t.shard_id, t.entity_key, t.is_due,
    coalesce((
        SELECT octet_length(e.doc)
        FROM /*schema*/entity AS e
        WHERE e.shard_id = t.shard_id AND e.entity_key = t.entity_key /*one-shard: AND e.shard_id = $7*/
    ), 0) + coalesce((
        SELECT sum(octet_length(s.body))
        FROM /*schema*/stage_state AS s
        WHERE s.shard_id = t.shard_id AND s.entity_key = t.entity_key
          /*one-shard: AND s.shard_id = $7*/
    ), 0) AS bytes,
    t.ready_at
FROM (
    SELECT f.shard_id, f.entity_key, f.is_due, f.ready_at
    FROM unnest($1::int[]) AS h (shard_id)
    CROSS JOIN LATERAL (
        (
            SELECT q.shard_id, q.entity_key, true AS is_due, q.ready_at
            FROM /*schema*/stage_queue AS q
            WHERE q.shard_id = h.shard_id AND q.stage = $2::text AND q.lane = $3::smallint
              AND q.ready_at <= statement_timestamp() AND q.status = 'ready'
              AND q.entity_key NOT IN (SELECT unnest($6::text[])) /*one-shard: AND q.shard_id = $7*/
            ORDER BY q.ready_at
            LIMIT $5::int
        )
        UNION ALL
        (
            SELECT q.shard_id, q.entity_key, false, q.ready_at
            FROM /*schema*/stage_queue AS q
            WHERE q.shard_id = h.shard_id AND q.stage = $2::text AND q.lane = $3::smallint
              AND q.ready_at > statement_timestamp() AND q.status = 'ready'
              /*one-shard: AND q.shard_id = $7*/
            ORDER BY q.ready_at
            LIMIT 1
        )
    ) AS f
    ORDER BY f.ready_at, f.entity_key
    LIMIT $4::int
) AS t
ORDER BY t.ready_at, t.entity_key;

-- name: claim shard-local
-- Ready rows of a stage, with all that a run needs. That they are ready is not said where they are
-- looked up: the index of ready rows is not meant.
-- $1 shards, $2 lease guids (once for a shard: see commit_plain), $3 keys, $4 stage
SELECT
    u.place, e.entity_key, e.shard_id, e.epoch, e.version, e.doc, e.changed_at,
    q.stage, q.lane, q.status, q.ready_at, q.timer_at, q.first_at, q.seq, q.attempts, q.reasons,
    q.root, q.depth, q.error, q.note, s.*, o.due, o.held_back, o.ahead,
    statement_timestamp() AS now
FROM unnest($1::int[], $3::text[]) WITH ORDINALITY AS u (shard_id, entity_key, place)
CROSS JOIN LATERAL (
    SELECT n.shard_id
    FROM /*schema*/shard_lock AS n
    WHERE n.shard_id = u.shard_id AND n.lease_guid = ANY ($2::uuid[])
      /*one-shard: AND n.shard_id = $5*/
    LIMIT 1
) AS held
CROSS JOIN LATERAL (
    SELECT n.*
    FROM /*schema*/stage_queue AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key AND n.stage = $4::text
      /*one-shard: AND n.shard_id = $5*/
    LIMIT 1
) AS q
CROSS JOIN LATERAL (
    SELECT n.*
    FROM /*schema*/entity AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key AND n.doc IS NOT NULL
      /*one-shard: AND n.shard_id = $5*/
    LIMIT 1
) AS e
CROSS JOIN LATERAL (
    SELECT array_agg(n.stage) AS state_stages, array_agg(n.version) AS state_versions,
           array_agg(n.revision) AS state_revisions, array_agg(n.type) AS state_types,
           array_agg(n.body) AS state_bodies
    FROM /*schema*/stage_state AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $5*/
) AS s
CROSS JOIN LATERAL (
    SELECT
        array_agg(n.stage) FILTER (WHERE n.is_due) AS due,
        array_agg(n.stage) FILTER (WHERE NOT n.is_due) AS held_back,
        array_agg(n.stage) FILTER (
            WHERE n.is_due AND (n.ready_at, n.stage) < (q.ready_at, q.stage)
        ) AS ahead
    FROM (
        SELECT p.stage, p.ready_at,
               p.status = 'ready' AND p.ready_at <= statement_timestamp() AS is_due
        FROM /*schema*/stage_queue AS p
        WHERE p.shard_id = u.shard_id AND p.entity_key = u.entity_key AND p.stage <> $4::text
          AND p.status <> 'sleeping' /*one-shard: AND p.shard_id = $5*/
    ) AS n
) AS o
WHERE q.status = 'ready';

-- name: changed_entities shard-local
-- Entities that somebody is to be asked about, those that wait longest first; bytes as in lane_head.
-- $1 shards, $2 limit, $3 limit per shard, $4 entities to leave out
SELECT
    t.shard_id, t.entity_key, t.seq, t.epoch, t.since,
    coalesce((
        SELECT octet_length(e.doc)
        FROM /*schema*/entity AS e
        WHERE e.shard_id = t.shard_id AND e.entity_key = t.entity_key /*one-shard: AND e.shard_id = $5*/
    ), 0) + coalesce((
        SELECT sum(octet_length(s.body))
        FROM /*schema*/stage_state AS s
        WHERE s.shard_id = t.shard_id AND s.entity_key = t.entity_key
          /*one-shard: AND s.shard_id = $5*/
    ), 0) AS bytes,
    t.first_at
FROM (
    SELECT f.shard_id, f.entity_key, f.seq, f.epoch, f.since, f.first_at
    FROM unnest($1::int[]) AS h (shard_id)
    CROSS JOIN LATERAL (
        SELECT n.*
        FROM /*schema*/changed_entity AS n
        WHERE n.shard_id = h.shard_id AND n.entity_key <> ALL ($4::text[])
          /*one-shard: AND n.shard_id = $5*/
        ORDER BY n.first_at
        LIMIT $3::int
    ) AS f
    ORDER BY f.first_at, f.entity_key
    LIMIT $2::int
) AS t
ORDER BY t.first_at, t.entity_key;

-- name: changed_entities_load shard-local
-- Living entities with all that is needed to ask the stages about them.
-- $1 shards, $2 lease guids, $3 keys, $4 epochs of the changes, $5 versions before them; leases, epochs and
-- versions as in commit_plain
SELECT
    u.place, e.entity_key, e.shard_id, e.epoch, e.version, e.doc, e.changed_at,
    s.*, q.*, c.*
FROM unnest($1::int[], $3::text[], $4::bigint[], $5::bigint[])
    WITH ORDINALITY AS u (shard_id, entity_key, epoch, since, place)
CROSS JOIN LATERAL (
    SELECT n.shard_id
    FROM /*schema*/shard_lock AS n
    WHERE n.shard_id = u.shard_id AND n.lease_guid = ANY ($2::uuid[])
      /*one-shard: AND n.shard_id = $6*/
    LIMIT 1
) AS held
CROSS JOIN LATERAL (
    SELECT n.*
    FROM /*schema*/entity AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key AND n.doc IS NOT NULL
      /*one-shard: AND n.shard_id = $6*/
    LIMIT 1
) AS e
CROSS JOIN LATERAL (
    SELECT array_agg(n.stage) AS state_stages, array_agg(n.version) AS state_versions,
           array_agg(n.revision) AS state_revisions, array_agg(n.type) AS state_types,
           array_agg(n.body) AS state_bodies
    FROM /*schema*/stage_state AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $6*/
) AS s
CROSS JOIN LATERAL (
    SELECT array_agg(n.stage) AS row_stages, array_agg(n.lane) AS row_lanes,
           array_agg(n.status) AS row_statuses, array_agg(n.ready_at) AS row_ready_ats,
           array_agg(n.timer_at) AS row_timer_ats, array_agg(n.first_at) AS row_first_ats,
           array_agg(n.seq) AS row_seqs, array_agg(n.attempts) AS row_attempts,
           array_agg(array_to_json(n.reasons)::text) AS row_reasons,
           array_agg(n.root) AS row_roots, array_agg(n.depth) AS row_depths,
           array_agg(n.error) AS row_errors, array_agg(n.note) AS row_notes
    FROM /*schema*/stage_queue AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $6*/
) AS q
CROSS JOIN LATERAL (
    SELECT array_agg(o.version) AS note_versions, array_agg(o.paths) AS note_paths,
           array_agg(o.author) AS note_authors, array_agg(o.root) AS note_roots,
           array_agg(o.depth) AS note_depths, array_agg(o.at) AS note_ats
    FROM (
        SELECT n.*
        FROM /*schema*/entity_change AS n
        WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key AND n.epoch = coalesce(u.epoch, ($4::bigint[])[1])
          AND n.version > coalesce(u.since, ($5::bigint[])[1])
          /*one-shard: AND n.shard_id = $6*/
        ORDER BY n.version
    ) AS o
) AS c
ORDER BY u.place;

-- name: commit_moved shard-local
-- Entities as they are, with their changes since a version.
-- $1 shards, $2 keys, $3 versions
SELECT
    e.entity_key, e.shard_id, e.epoch, e.version, e.doc, e.changed_at,
    c.*
FROM unnest($1::int[], $2::text[], $3::bigint[])
    WITH ORDINALITY AS u (shard_id, entity_key, since, place)
CROSS JOIN LATERAL (
    SELECT n.*
    FROM /*schema*/entity AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $4*/
    LIMIT 1
) AS e
CROSS JOIN LATERAL (
    SELECT array_agg(o.version) AS note_versions, array_agg(o.paths) AS note_paths,
           array_agg(o.author) AS note_authors, array_agg(o.root) AS note_roots,
           array_agg(o.depth) AS note_depths, array_agg(o.at) AS note_ats
    FROM (
        SELECT n.*
        FROM /*schema*/entity_change AS n
        WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key AND n.epoch = e.epoch AND n.version > u.since
          /*one-shard: AND n.shard_id = $4*/
        ORDER BY n.version
    ) AS o
) AS c
ORDER BY u.place;

-- name: route_done shard-local
-- The stages were asked about these, unless they changed meanwhile. Their entities are locked.
-- $1 shards, $2 keys, $3 seqs
DELETE FROM /*schema*/changed_entity AS f
WHERE f.ctid = ANY (ARRAY(
    SELECT r.row_id
    FROM unnest($1::int[], $2::text[], $3::bigint[]) AS u (shard_id, entity_key, seq)
    CROSS JOIN LATERAL (
        SELECT n.ctid AS row_id
        FROM /*schema*/changed_entity AS n
        WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key AND n.seq = u.seq
          /*one-shard: AND n.shard_id = $4*/
        LIMIT 1
    ) AS r
)) /*one-shard: AND f.shard_id = $4*/
RETURNING f.entity_key;

-- name: route_since shard-local
-- Of those that changed meanwhile: asked about up to a version.
-- $1 shards, $2 keys, $3 versions
WITH there AS MATERIALIZED (
    SELECT r.row_id, u.version
    FROM unnest($1::int[], $2::text[], $3::bigint[]) AS u (shard_id, entity_key, version)
    CROSS JOIN LATERAL (
        SELECT n.ctid AS row_id
        FROM /*schema*/changed_entity AS n
        WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $4*/
        LIMIT 1
    ) AS r
)
UPDATE /*schema*/changed_entity AS f
SET since = greatest(f.since, t.version)
FROM there AS t
WHERE f.ctid = t.row_id /*one-shard: AND f.shard_id = $4*/;

-- name: next_work shard-local
-- What held shards have to do: the earliest of every lane, by leaping from lane to lane in the index;
-- the earliest timer; whether somebody is to be asked; the backfills.
-- $1 shards, $2 lease guids
WITH RECURSIVE held AS MATERIALIZED (
    SELECT n.shard_id
    FROM unnest($1::int[], $2::uuid[]) AS u (shard_id, lease_guid)
    CROSS JOIN LATERAL (
        SELECT l.shard_id
        FROM /*schema*/shard_lock AS l
        WHERE l.shard_id = u.shard_id AND l.lease_guid = u.lease_guid
          /*one-shard: AND l.shard_id = $3*/
        LIMIT 1
    ) AS n
), lane AS (
    SELECT h.shard_id, f.stage, f.lane, f.ready_at
    FROM held AS h
    CROSS JOIN LATERAL (
        SELECT q.stage, q.lane, q.ready_at
        FROM /*schema*/stage_queue AS q
        WHERE q.shard_id = h.shard_id AND q.status = 'ready' /*one-shard: AND q.shard_id = $3*/
        ORDER BY q.stage, q.lane, q.ready_at
        LIMIT 1
    ) AS f
    UNION ALL
    SELECT p.shard_id, n.stage, n.lane, n.ready_at
    FROM lane AS p
    CROSS JOIN LATERAL (
        SELECT q.stage, q.lane, q.ready_at
        FROM /*schema*/stage_queue AS q
        WHERE q.shard_id = p.shard_id AND (q.stage, q.lane) > (p.stage, p.lane)
          AND q.status = 'ready' /*one-shard: AND q.shard_id = $3*/
        ORDER BY q.stage, q.lane, q.ready_at
        LIMIT 1
    ) AS n
)
SELECT 'ready' AS what, l.stage, l.lane::int, NULL::int AS shard_id, min(l.ready_at) AS at, statement_timestamp() AS now
FROM lane AS l
GROUP BY l.stage, l.lane
UNION ALL
SELECT 'timer', NULL, NULL, NULL, min(t.timer_at), statement_timestamp()
FROM held AS h
CROSS JOIN LATERAL (
    SELECT q.timer_at
    FROM /*schema*/stage_queue AS q
    WHERE q.shard_id = h.shard_id AND q.timer_at IS NOT NULL AND q.status IN ('sleeping', 'ready')
      /*one-shard: AND q.shard_id = $3*/
    ORDER BY q.timer_at
    LIMIT 1
) AS t
UNION ALL
SELECT 'changed', NULL, NULL, NULL, min(f.first_at), statement_timestamp()
FROM held AS h
CROSS JOIN LATERAL (
    SELECT n.first_at
    FROM /*schema*/changed_entity AS n
    WHERE n.shard_id = h.shard_id /*one-shard: AND n.shard_id = $3*/
    ORDER BY n.first_at
    LIMIT 1
) AS f
UNION ALL
SELECT 'backfill', w.stage, NULL, w.shard_id, NULL, statement_timestamp()
FROM held AS h
CROSS JOIN LATERAL (
    SELECT n.stage, n.shard_id
    FROM /*schema*/stage_backfill AS n
    WHERE n.shard_id = h.shard_id AND NOT n.ended /*one-shard: AND n.shard_id = $3*/
    OFFSET 0
) AS w;

-- name: backfill_page shard-local
-- An unfinished backfill of a held shard, unless the stage has enough to do there; between which keys it
-- goes on: `0` follows `/`.
-- $1 shard, $2 lease guid, $3 stage, $4 ready rows at most
SELECT w.reason, w.started_at, coalesce(w.cursor, s.kind || '/') AS after, s.kind || '0' AS below
FROM /*schema*/stage_backfill AS w
JOIN /*schema*/stage AS s ON s.name = w.stage
WHERE w.shard_id = $1::int AND w.stage = $3::text AND NOT w.ended
  AND EXISTS (
      SELECT 1 FROM /*schema*/shard_lock AS l
      WHERE l.shard_id = $1::int AND l.lease_guid = $2::uuid
      OFFSET 0
  )
  AND NOT EXISTS (
      SELECT 1 FROM /*schema*/stage_queue AS q
      WHERE q.shard_id = $1::int AND q.stage = $3::text AND q.lane = 1 AND q.status = 'ready'
      OFFSET $4::int LIMIT 1
  );

-- name: backfill_page_keys shard-local
-- The next living entities of a shard; bytes as in lane_head.
-- $1 shard, $2 after, $3 below, $4 limit
SELECT
    t.entity_key,
    t.size + coalesce((
        SELECT sum(octet_length(s.body))
        FROM /*schema*/stage_state AS s
        WHERE s.shard_id = $1::int AND s.entity_key = t.entity_key
    ), 0) AS bytes
FROM (
    SELECT e.entity_key, octet_length(e.doc) AS size
    FROM /*schema*/entity AS e
    WHERE e.shard_id = $1::int AND e.entity_key > $2::text AND e.entity_key < $3::text
      AND e.doc IS NOT NULL
    ORDER BY e.entity_key
    LIMIT $4::int
) AS t
ORDER BY t.entity_key;

-- name: advance_backfill shard-local
-- Move a backfill on, or end it, if it is still the one and the shard is still held.
-- $1 shard, $2 lease guid, $3 stage, $4 which backfill, $5 cursor (NULL: the end)
UPDATE /*schema*/stage_backfill AS w
SET cursor = $5::text, ended = $5::text IS NULL
WHERE w.shard_id = $1::int AND w.stage = $3::text AND w.started_at = $4::timestamptz AND NOT w.ended
  AND EXISTS (
      SELECT 1 FROM /*schema*/shard_lock AS l
      WHERE l.shard_id = $1::int AND l.lease_guid = $2::uuid
      OFFSET 0
  )
RETURNING w.stage;

-- name: rows_undelivered shard-local
-- The first save of each sink that is quarantined, as a row of the queue.
-- $1 shard, $2 entity
SELECT DISTINCT ON (o.sink)
    o.entity_key, o.sink AS stage, 0 AS lane, 'undelivered' AS status,
    NULL::timestamptz AS ready_at, NULL::timestamptz AS timer_at, o.at AS first_at, o.n AS seq,
    o.attempts, ARRAY['save v' || o.version] AS reasons, o.root, 0 AS depth, o.error, NULL AS note
FROM /*schema*/stage_outbox AS o
WHERE o.shard_id = $1::int AND o.entity_key = $2::text AND o.ready_at IS NULL
ORDER BY o.sink, o.n;

-- name: parked_undelivered global
-- The same of all entities.
-- $1 after this entity, $2 and this stage of it, $3 below this entity, $4 stage (NULL: all), $5 limit
SELECT DISTINCT ON (o.entity_key, o.sink)
    o.entity_key, o.sink AS stage, 0 AS lane, 'undelivered' AS status,
    NULL::timestamptz AS ready_at, NULL::timestamptz AS timer_at, o.at AS first_at, o.n AS seq,
    o.attempts, ARRAY['save v' || o.version] AS reasons, o.root, 0 AS depth, o.error, NULL AS note
FROM /*schema*/stage_outbox AS o
WHERE o.ready_at IS NULL AND (o.entity_key, o.sink) > ($1::text, $2::text)
  AND o.entity_key < $3::text AND ($4::text IS NULL OR o.sink = $4::text)
ORDER BY o.entity_key, o.sink, o.n
LIMIT $5::int;

-- name: release_saves shard-local
-- Undelivered saves of an entity, which is locked, are due now.
-- $1 shard, $2 entity, $3 stage (NULL: all)
UPDATE /*schema*/stage_outbox AS o SET ready_at = statement_timestamp(), attempts = 0
WHERE o.shard_id = $1::int AND o.entity_key = $2::text AND o.ready_at IS NULL
  AND ($3::text IS NULL OR o.sink = $3::text)
RETURNING o.sink;
