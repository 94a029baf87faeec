-- What all migrations add up to, for readers. Made by `make schema`; do not edit.

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

CREATE VIEW queue_inverted AS
SELECT shard_id, entity_key, stage, status, lane, ready_at, timer_at, seq, attempts
FROM stage_queue;

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

CREATE TABLE changed_entity (
    shard_id INTEGER NOT NULL,
    entity_key TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    since INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    PRIMARY KEY (entity_key)
) WITHOUT ROWID, STRICT;

CREATE TABLE declared_action (
    id TEXT NOT NULL PRIMARY KEY,
    program TEXT NOT NULL,
    set_no INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    is_removed INTEGER NOT NULL,
    paused_as BLOB, -- the generation that the removal paused
    CONSTRAINT declared_action_values_check CHECK (length(paused_as) = 16)
) WITHOUT ROWID, STRICT;

CREATE TABLE entity (
    entity_key TEXT NOT NULL PRIMARY KEY,
    shard_id INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    version INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    saves INTEGER NOT NULL DEFAULT 0,
    keeps_states INTEGER NOT NULL DEFAULT 0,
    doc TEXT,
    CONSTRAINT entity_values_check CHECK (
        version >= 0
        AND changed_at BETWEEN -62135596800000000 AND 253402300799999999
    )
) STRICT;

CREATE TABLE entity_change (
    shard_id INTEGER NOT NULL,
    entity_key TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    version INTEGER NOT NULL,
    depth INTEGER NOT NULL,
    at INTEGER NOT NULL,
    root BLOB NOT NULL,
    author TEXT NOT NULL,
    paths TEXT NOT NULL,
    PRIMARY KEY (entity_key, epoch, version),
    CONSTRAINT entity_change_values_check CHECK (
        length(root) = 16
        AND at BETWEEN -62135596800000000 AND 253402300799999999
    )
) WITHOUT ROWID, STRICT;

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

CREATE TABLE history (
    queue TEXT NOT NULL,
    at INTEGER NOT NULL CONSTRAINT history_at_check
        CHECK (at BETWEEN -62135596800000000 AND 253402300799999999),
    span INTEGER NOT NULL,
    worker_id BLOB NOT NULL,
    counts TEXT NOT NULL,
    PRIMARY KEY (queue, at, span, worker_id)
) WITHOUT ROWID, STRICT;

CREATE TABLE incoming_queue (
    shard_id INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    guid BLOB NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL,
    PRIMARY KEY (shard_id, created_at, guid)
) WITHOUT ROWID, STRICT;

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

CREATE TABLE migration (
    version INTEGER NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;

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

CREATE TABLE shard_lock (
    shard_id INTEGER NOT NULL PRIMARY KEY,
    lease_guid BLOB,
    owner TEXT,
    beat INTEGER NOT NULL DEFAULT 0,
    heartbeat_at INTEGER,
    last_processing_start_at INTEGER,
    incoming_mark INTEGER
) STRICT;

CREATE TABLE stage (
    name TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    revision INTEGER NOT NULL,
    first_seen_at INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    debounce INTEGER NOT NULL,
    watch TEXT NOT NULL,
    writes TEXT NOT NULL,
    CONSTRAINT stage_values_check CHECK (
        revision >= 0
        AND debounce BETWEEN 0 AND 86400000000
        AND first_seen_at BETWEEN -62135596800000000 AND 253402300799999999
        AND last_seen_at BETWEEN -62135596800000000 AND 253402300799999999
    )
) WITHOUT ROWID, STRICT;

CREATE TABLE stage_backfill (
    shard_id INTEGER NOT NULL,
    stage TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    cursor TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (shard_id, stage)
) WITHOUT ROWID, STRICT;

CREATE TABLE stage_outbox (
    shard_id INTEGER NOT NULL,
    entity_key TEXT NOT NULL,
    sink TEXT NOT NULL,
    n INTEGER NOT NULL,
    ready_at INTEGER,
    at INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    version INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    root BLOB NOT NULL,
    author TEXT NOT NULL,
    paths TEXT NOT NULL,
    key TEXT NOT NULL,
    error TEXT,
    state_version INTEGER,
    state_revision INTEGER,
    state_type TEXT,
    state_body BLOB,
    doc TEXT,
    PRIMARY KEY (entity_key, sink, n),
    CONSTRAINT stage_outbox_values_check CHECK (
        length(root) = 16
        AND at BETWEEN -62135596800000000 AND 253402300799999999
        AND ready_at BETWEEN -62135596800000000 AND 253402300799999999
    )
) STRICT;

CREATE TABLE stage_owner (
    shard_id INTEGER NOT NULL PRIMARY KEY,
    lease_guid BLOB NOT NULL,
    worker_id BLOB NOT NULL
) WITHOUT ROWID, STRICT;

CREATE TABLE stage_queue (
    shard_id INTEGER NOT NULL,
    entity_key TEXT NOT NULL,
    stage TEXT NOT NULL,
    lane INTEGER NOT NULL,
    status TEXT NOT NULL CONSTRAINT stage_queue_status_check
    CHECK (status IN ('sleeping', 'ready', 'quarantined', 'looping')),
    ready_at INTEGER,
    timer_at INTEGER,
    first_at INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    depth INTEGER NOT NULL,
    root BLOB NOT NULL,
    reasons TEXT NOT NULL,
    error TEXT,
    note TEXT,
    PRIMARY KEY (shard_id, entity_key, stage),
    CONSTRAINT stage_queue_values_check CHECK (
        length(root) = 16
        AND lane IN (0, 1)
        AND ready_at BETWEEN -62135596800000000 AND 253402300799999999
        AND timer_at BETWEEN -62135596800000000 AND 253402300799999999
        AND first_at BETWEEN -62135596800000000 AND 253402300799999999
    )
) WITHOUT ROWID, STRICT;

CREATE TABLE stage_server (
    worker_id BLOB NOT NULL,
    stage TEXT NOT NULL,
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (worker_id, stage)
) WITHOUT ROWID, STRICT;

CREATE TABLE stage_state (
    shard_id INTEGER NOT NULL,
    entity_key TEXT NOT NULL,
    stage TEXT NOT NULL,
    version INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    type TEXT,
    body BLOB NOT NULL,
    PRIMARY KEY (entity_key, stage)
) STRICT;

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

CREATE TABLE worker (
    worker_id BLOB NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    shards INTEGER NOT NULL,
    process TEXT, -- by which others can prove that it ended
    offer TEXT NOT NULL DEFAULT '' -- queues and needs, if there is something to say
) WITHOUT ROWID, STRICT;

CREATE INDEX attempt_log_cancelling_idx ON attempt_log (owner, began_at) WHERE outcome = 'cancelling';

CREATE INDEX attempt_log_id_idx ON attempt_log (id, began_at);

CREATE INDEX changed_entity_first_idx ON changed_entity (shard_id, first_at);

CREATE INDEX declared_action_program_idx ON declared_action (program);

CREATE INDEX entity_change_at_idx ON entity_change (at);

CREATE INDEX entity_kept_idx ON entity (changed_at) WHERE keeps_states = 1;

CREATE INDEX entity_shard_idx ON entity (shard_id, entity_key);

CREATE INDEX finished_action_dead_idx ON finished_action (queue, purge_at) WHERE state = 'dead';

CREATE INDEX finished_action_purge_idx ON finished_action (purge_at, state);

CREATE INDEX finished_action_trouble_idx ON finished_action (id) WHERE state <> 'done';

CREATE INDEX history_span_idx ON history (span, at);

CREATE INDEX processing_queue_lane_idx
ON processing_queue (shard_id, queue, priority, need, scheduled_at, running);

CREATE INDEX processing_queue_need_idx
ON processing_queue (need, shard_id, queue, priority, scheduled_at) WHERE need <> '';

CREATE INDEX processing_queue_running_idx ON processing_queue (shard_id, scheduled_at)
WHERE running = 1;

CREATE INDEX scheduled_action_creator_idx ON scheduled_action (creator)
WHERE creator IS NOT NULL;

CREATE INDEX scheduled_action_expiry_idx ON scheduled_action (shard_id, expires_at)
WHERE expires_at IS NOT NULL;

CREATE INDEX scheduled_action_failing_idx ON scheduled_action (id) WHERE occurrence_failures > 0;

CREATE UNIQUE INDEX scheduled_action_guid_key ON scheduled_action (guid);

CREATE INDEX scheduled_action_paused_idx ON scheduled_action (id) WHERE state = 'paused';

CREATE INDEX scheduled_action_paused_until_idx ON scheduled_action (shard_id, paused_until, id)
WHERE paused_until IS NOT NULL;

CREATE INDEX scheduled_action_recurring_idx ON scheduled_action (id)
WHERE instr(spec, '"policy":{') > 0;

CREATE INDEX stage_outbox_late_idx ON stage_outbox (shard_id, sink, at) WHERE ready_at > at;

CREATE INDEX stage_outbox_parked_idx ON stage_outbox (entity_key, sink, n) WHERE ready_at IS NULL;

CREATE INDEX stage_outbox_ready_idx ON stage_outbox (shard_id, sink, ready_at, n)
WHERE ready_at IS NOT NULL;

CREATE INDEX stage_queue_parked_idx ON stage_queue (entity_key, stage)
WHERE status IN ('quarantined', 'looping');

CREATE INDEX stage_queue_ready_idx ON stage_queue (shard_id, stage, lane, ready_at)
WHERE status = 'ready';

CREATE INDEX stage_queue_timer_idx ON stage_queue (shard_id, timer_at)
WHERE timer_at IS NOT NULL AND status IN ('sleeping', 'ready');

CREATE INDEX token_name_idx ON token (name, created_at);
