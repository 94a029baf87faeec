-- Entities and their stages: new tables and a view, nothing else.
-- The previous release: knows none of them and goes on.

-- `saves` numbers the outbox rows of a key through all its epochs. A tombstone has no document;
-- `keeps_states` says that there are still states beside it. The document stands last: what follows
-- a wide column is slow to reach.
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

-- For walks over a shard.
CREATE INDEX entity_shard_idx ON entity (shard_id, entity_key);

CREATE INDEX entity_kept_idx ON entity (changed_at) WHERE keeps_states = 1;

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

CREATE INDEX entity_change_at_idx ON entity_change (at);

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

-- An entity is in a stage's queue at most once. `seq` is what a commit must find unchanged to remove
-- the row; it begins at random, so that a row that comes again never looks like the one that went.
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

CREATE INDEX stage_queue_ready_idx ON stage_queue (shard_id, stage, lane, ready_at)
WHERE status = 'ready';

-- Parked rows keep their timers, which do not fire: they would be in the way of the others.
CREATE INDEX stage_queue_timer_idx ON stage_queue (shard_id, timer_at)
WHERE timer_at IS NOT NULL AND status IN ('sleeping', 'ready');

CREATE INDEX stage_queue_parked_idx ON stage_queue (entity_key, stage)
WHERE status IN ('quarantined', 'looping');

-- The queue by entity: for readers.
CREATE VIEW queue_inverted AS
SELECT shard_id, entity_key, stage, status, lane, ready_at, timer_at, seq, attempts
FROM stage_queue;

-- Entities with changes that no stage was asked about: those of this epoch after version `since`.
CREATE TABLE changed_entity (
    shard_id INTEGER NOT NULL,
    entity_key TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    since INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    PRIMARY KEY (entity_key)
) WITHOUT ROWID, STRICT;

CREATE INDEX changed_entity_first_idx ON changed_entity (shard_id, first_at);

-- Saves on their way out. `n` is the entity's number of the save. Of one entity and sink no row is
-- due before an earlier one: `ready_at` never falls as `n` rises. Without it, the row is quarantined or
-- behind one that is.
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

CREATE INDEX stage_outbox_ready_idx ON stage_outbox (shard_id, sink, ready_at, n)
WHERE ready_at IS NOT NULL;

CREATE INDEX stage_outbox_parked_idx ON stage_outbox (entity_key, sink, n) WHERE ready_at IS NULL;

-- What was put off, to tell how old it is: nothing, as long as all goes well.
CREATE INDEX stage_outbox_late_idx ON stage_outbox (shard_id, sink, at) WHERE ready_at > at;

-- The register: every stage that was ever declared and not forgotten, with the kind of its entities.
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

-- Which workers serve it, and when they last said so.
CREATE TABLE stage_server (
    worker_id BLOB NOT NULL,
    stage TEXT NOT NULL,
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (worker_id, stage)
) WITHOUT ROWID, STRICT;

-- Whose lease it is: what the owner of a shard does not serve, others do in its place.
CREATE TABLE stage_owner (
    shard_id INTEGER NOT NULL PRIMARY KEY,
    lease_guid BLOB NOT NULL,
    worker_id BLOB NOT NULL
) WITHOUT ROWID, STRICT;

-- Walks over the entities of a shard; one that has ended stays, to tell when it began.
CREATE TABLE stage_backfill (
    shard_id INTEGER NOT NULL,
    stage TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    cursor TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (shard_id, stage)
) WITHOUT ROWID, STRICT;
