-- The first schema. Times are whole microseconds since 1970, guids are 16 bytes, truth is 0 or 1.
-- The previous release: there is none.

CREATE TABLE installation (
    only_row INTEGER NOT NULL PRIMARY KEY CONSTRAINT installation_one_check CHECK (only_row = 1),
    id BLOB NOT NULL,
    shard_count INTEGER NOT NULL,
    schema_version INTEGER NOT NULL,
    floor INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    inode INTEGER,
    limits_version INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE migration (
    version INTEGER NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;

-- The shard follows from the id, and no guid comes twice, so id and guid alone are keys: listings
-- walk the ids in order, and what was made at one time lies together, whatever its shard.
-- The wide columns stand last: what follows a wide column is slow to reach.
CREATE TABLE scheduled_action (
    id TEXT NOT NULL PRIMARY KEY,
    shard_id INTEGER NOT NULL,
    guid BLOB NOT NULL,
    state TEXT NOT NULL CONSTRAINT scheduled_action_state_check CHECK (state IN ('active', 'paused')),
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    timeout_us INTEGER NOT NULL CONSTRAINT scheduled_action_timeout_us_check
        CHECK (timeout_us BETWEEN 1 AND 86400000000),
    retention_us INTEGER NOT NULL CONSTRAINT scheduled_action_retention_us_check
        CHECK (retention_us BETWEEN 0 AND 31622400000000),
    keyed INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    scheduled_at INTEGER,
    occurrence_no INTEGER NOT NULL,
    occurrence_at INTEGER NOT NULL,
    expires_at INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    succeeded INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    interrupted INTEGER NOT NULL DEFAULT 0,
    consecutive_failures INTEGER NOT NULL DEFAULT 0,
    consecutive_interruptions INTEGER NOT NULL DEFAULT 0,
    occurrence_failures INTEGER NOT NULL DEFAULT 0,
    creator TEXT,
    series BLOB, -- the first guid, if pause, resume or run now changed it
    reason TEXT, -- why it is paused
    paused_until INTEGER, -- when it goes on by itself
    last_attempt TEXT,
    spec TEXT NOT NULL,
    CONSTRAINT scheduled_action_values_check CHECK (
        length(guid) = 16
        AND created_at BETWEEN -62135596800000000 AND 253402300799999999
        AND updated_at BETWEEN -62135596800000000 AND 253402300799999999
        AND scheduled_at BETWEEN -62135596800000000 AND 253402300799999999
        AND occurrence_at BETWEEN -62135596800000000 AND 253402300799999999
        AND expires_at BETWEEN -62135596800000000 AND 253402300799999999
        AND paused_until BETWEEN -62135596800000000 AND 253402300799999999
    )
) STRICT;

-- What is paused, for who looks for it; and pauses that end by themselves, in that order.
CREATE INDEX scheduled_action_paused_idx ON scheduled_action (id) WHERE state = 'paused';

CREATE INDEX scheduled_action_paused_until_idx ON scheduled_action (shard_id, paused_until, id)
WHERE paused_until IS NOT NULL;

CREATE UNIQUE INDEX scheduled_action_guid_key ON scheduled_action (guid);

-- Counts what a token's name has alive; what was created without a token is not in it.
CREATE INDEX scheduled_action_creator_idx ON scheduled_action (creator)
WHERE creator IS NOT NULL;

CREATE INDEX scheduled_action_expiry_idx ON scheduled_action (shard_id, expires_at)
WHERE expires_at IS NOT NULL;

-- What fails and is tried again, for who looks for it.
CREATE INDEX scheduled_action_failing_idx ON scheduled_action (id) WHERE occurrence_failures > 0;

-- What comes again, for who looks ahead.
CREATE INDEX scheduled_action_recurring_idx ON scheduled_action (id)
WHERE instr(spec, '"policy":{') > 0;

CREATE TABLE incoming_queue (
    shard_id INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    guid BLOB NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL,
    PRIMARY KEY (shard_id, created_at, guid)
) WITHOUT ROWID, STRICT;

CREATE TABLE processing_queue (
    shard_id INTEGER NOT NULL,
    guid BLOB NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL,
    attempt_id BLOB,
    attempts INTEGER NOT NULL,
    running INTEGER NOT NULL DEFAULT 0,
    swept INTEGER NOT NULL DEFAULT 0,
    began_at INTEGER,
    deadline_at INTEGER,
    owner TEXT,
    need TEXT NOT NULL DEFAULT '', -- of a row that was handed back
    PRIMARY KEY (guid),
    CONSTRAINT processing_queue_values_check CHECK (
        length(guid) = 16
        AND length(attempt_id) = 16
        AND scheduled_at BETWEEN -62135596800000000 AND 253402300799999999
        AND began_at BETWEEN -62135596800000000 AND 253402300799999999
        AND deadline_at BETWEEN -62135596800000000 AND 253402300799999999
    )
) WITHOUT ROWID, STRICT;

CREATE INDEX processing_queue_lane_idx
ON processing_queue (shard_id, queue, priority, need, scheduled_at, running);

-- What was handed back, for those who serve it. Most often there is none.
CREATE INDEX processing_queue_need_idx
ON processing_queue (need, shard_id, queue, priority, scheduled_at) WHERE need <> '';

-- What runs past its reservation is found here, even behind a backlog in its lane.
CREATE INDEX processing_queue_running_idx ON processing_queue (shard_id, scheduled_at)
WHERE running = 1;

-- An action that lives, with its row of the processing queue: what everybody is shown.
CREATE VIEW live_action AS
SELECT
    a.id, a.shard_id, a.guid, a.state, a.keyed, a.retention_us, a.created_at, a.updated_at,
    CASE a.state WHEN 'active' THEN coalesce(q.scheduled_at, a.scheduled_at) END AS scheduled_at,
    a.occurrence_no, a.occurrence_at, a.expires_at,
    coalesce(q.attempts, a.attempts) AS attempts,
    a.succeeded, a.failed, a.interrupted,
    a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures,
    a.last_attempt, a.spec, a.queue, a.priority,
    q.running, q.attempt_id, q.began_at, q.deadline_at, q.owner, q.need, a.reason,
    a.paused_until
FROM scheduled_action AS a
LEFT JOIN processing_queue AS q ON q.shard_id = a.shard_id AND q.guid = a.guid;

CREATE TABLE finished_action (
    id TEXT NOT NULL,
    shard_id INTEGER NOT NULL,
    guid BLOB NOT NULL,
    state TEXT NOT NULL CONSTRAINT finished_action_state_check
    CHECK (state IN ('done', 'dead', 'cancelled', 'expired')),
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    keyed INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    occurrence_no INTEGER NOT NULL,
    occurrence_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    interrupted INTEGER NOT NULL,
    consecutive_failures INTEGER NOT NULL,
    consecutive_interruptions INTEGER NOT NULL,
    occurrence_failures INTEGER NOT NULL,
    attempt_id BLOB,
    began_at INTEGER,
    reason TEXT,
    finished_at INTEGER NOT NULL,
    purge_at INTEGER NOT NULL,
    last_attempt TEXT,
    spec TEXT NOT NULL,
    PRIMARY KEY (id, guid, finished_at),
    CONSTRAINT finished_action_values_check CHECK (
        length(guid) = 16
        AND length(attempt_id) = 16
        AND created_at BETWEEN -62135596800000000 AND 253402300799999999
        AND updated_at BETWEEN -62135596800000000 AND 253402300799999999
        AND occurrence_at BETWEEN -62135596800000000 AND 253402300799999999
        AND began_at BETWEEN -62135596800000000 AND 253402300799999999
        AND finished_at BETWEEN -62135596800000000 AND 253402300799999999
    )
) STRICT;

CREATE INDEX finished_action_purge_idx ON finished_action (purge_at, state);

-- What ended otherwise than well, for lists.
CREATE INDEX finished_action_trouble_idx ON finished_action (id) WHERE state <> 'done';

-- For the figures: few are dead, and they are counted by queue.
CREATE INDEX finished_action_dead_idx ON finished_action (queue, purge_at) WHERE state = 'dead';

CREATE TABLE attempt_log (
    shard_id INTEGER NOT NULL,
    id TEXT NOT NULL,
    guid BLOB NOT NULL,
    attempt_id BLOB NOT NULL,
    attempt_no INTEGER NOT NULL,
    occurrence_no INTEGER NOT NULL,
    began_at INTEGER NOT NULL,
    ended_at INTEGER,
    outcome TEXT NOT NULL,
    error TEXT,
    answer TEXT,
    owner TEXT,
    PRIMARY KEY (shard_id, attempt_id, began_at),
    CONSTRAINT attempt_log_values_check CHECK (
        length(attempt_id) = 16
        AND began_at BETWEEN -62135596800000000 AND 253402300799999999
        AND ended_at BETWEEN -62135596800000000 AND 253402300799999999
    )
) STRICT;

CREATE INDEX attempt_log_id_idx ON attempt_log (id, began_at);

-- Attempts that were asked to end, for the workers that make them.
CREATE INDEX attempt_log_cancelling_idx ON attempt_log (owner, began_at) WHERE outcome = 'cancelling';

CREATE TABLE shard_lock (
    shard_id INTEGER NOT NULL PRIMARY KEY,
    lease_guid BLOB,
    owner TEXT,
    beat INTEGER NOT NULL DEFAULT 0,
    heartbeat_at INTEGER,
    last_processing_start_at INTEGER,
    incoming_mark INTEGER
) STRICT;

CREATE TABLE worker (
    worker_id BLOB NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    shards INTEGER NOT NULL,
    process TEXT, -- by which others can prove that it ended
    offer TEXT NOT NULL DEFAULT '' -- queues and needs, if there is something to say
) WITHOUT ROWID, STRICT;

-- What may happen at once and how often.
CREATE TABLE work_limit (
    kind TEXT NOT NULL CONSTRAINT work_limit_kind_check CHECK (kind IN ('queue', 'target', 'stage')),
    name TEXT NOT NULL,
    parallel INTEGER,
    rate REAL,
    burst INTEGER,
    PRIMARY KEY (kind, name),
    CONSTRAINT work_limit_values_check CHECK (
        parallel BETWEEN 0 AND 1000000
        AND rate BETWEEN 0 AND 1000000
        AND burst BETWEEN 1 AND 1000000
        AND coalesce(parallel, rate) IS NOT NULL
    )
) WITHOUT ROWID, STRICT;

-- How much of a limit each worker may use, as it was told when it asked last.
CREATE TABLE limit_grant (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    worker_id BLOB NOT NULL,
    wanted INTEGER NOT NULL,
    counted INTEGER NOT NULL,
    allowed INTEGER NOT NULL,
    is_waiting INTEGER NOT NULL,
    since INTEGER NOT NULL,
    asked_at INTEGER NOT NULL,
    PRIMARY KEY (kind, name, worker_id)
) WITHOUT ROWID, STRICT;

-- What was counted of attempts: by minute, later by hour. `span` is in seconds, 0 while the row is one
-- worker's count of a minute. `counts` is an array in JSON, see `gnomon.model.history`.
CREATE TABLE history (
    queue TEXT NOT NULL,
    at INTEGER NOT NULL CONSTRAINT history_at_check
        CHECK (at BETWEEN -62135596800000000 AND 253402300799999999),
    span INTEGER NOT NULL,
    worker_id BLOB NOT NULL,
    counts TEXT NOT NULL,
    PRIMARY KEY (queue, at, span, worker_id)
) WITHOUT ROWID, STRICT;

CREATE INDEX history_span_idx ON history (span, at);

-- Which set of actions a program declares at present.
CREATE TABLE program (
    name TEXT NOT NULL PRIMARY KEY,
    set_no INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    known TEXT NOT NULL, -- fingerprints of its sets, the latest last
    seen_at INTEGER NOT NULL,
    CONSTRAINT program_values_check CHECK (
        seen_at BETWEEN -62135596800000000 AND 253402300799999999
    )
) WITHOUT ROWID, STRICT;

-- What living programs serve, for forms: one row for each release.
CREATE TABLE function_set (
    program TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    functions TEXT NOT NULL,
    began_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    CONSTRAINT function_set_pkey PRIMARY KEY (program, fingerprint),
    CONSTRAINT function_set_values_check CHECK (
        began_at BETWEEN -62135596800000000 AND 253402300799999999
        AND seen_at BETWEEN -62135596800000000 AND 253402300799999999
    )
) WITHOUT ROWID, STRICT;

-- What is known of the actions that programs declared. One row each, also when it has ended.
CREATE TABLE declared_action (
    id TEXT NOT NULL PRIMARY KEY,
    program TEXT NOT NULL,
    set_no INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    is_removed INTEGER NOT NULL,
    paused_as BLOB, -- the generation that the removal paused
    CONSTRAINT declared_action_values_check CHECK (length(paused_as) = 16)
) WITHOUT ROWID, STRICT;

CREATE INDEX declared_action_program_idx ON declared_action (program);

-- How far running attempts are, as their functions say. Whoever reports nothing is not in it.
CREATE TABLE attempt_progress (
    id TEXT NOT NULL PRIMARY KEY,
    attempt_id BLOB NOT NULL,
    at INTEGER NOT NULL,
    fraction REAL NOT NULL,
    said TEXT NOT NULL,
    CONSTRAINT attempt_progress_values_check CHECK (
        length(attempt_id) = 16
        AND at BETWEEN -62135596800000000 AND 253402300799999999
    )
) WITHOUT ROWID, STRICT;

-- Who may call. Rows are never removed: a server that needs tokens must not forget that it does.
CREATE TABLE token (
    token_id BLOB NOT NULL PRIMARY KEY,
    digest BLOB NOT NULL CONSTRAINT token_digest_key UNIQUE,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    rate REAL,
    live_max INTEGER,
    CONSTRAINT token_values_check CHECK (
        length(token_id) = 16
        AND rate > 0
        AND created_at BETWEEN -62135596800000000 AND 253402300799999999
        AND expires_at BETWEEN -62135596800000000 AND 253402300799999999
        AND revoked_at BETWEEN -62135596800000000 AND 253402300799999999
    )
) STRICT;

CREATE INDEX token_name_idx ON token (name, created_at);

-- Who changed what, written by the change's own transaction, in order of time.
CREATE TABLE audit (
    entry_no INTEGER NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    guid BLOB NOT NULL,
    count INTEGER NOT NULL,
    verb TEXT NOT NULL,
    actor TEXT NOT NULL,
    id TEXT NOT NULL,
    face TEXT NOT NULL,
    CONSTRAINT audit_values_check CHECK (
        length(guid) = 16
        AND at BETWEEN -62135596800000000 AND 253402300799999999
    )
) STRICT;
