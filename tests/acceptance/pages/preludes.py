"""What a page's Python blocks take for granted: names that a reader has, and where things are.

Every page has `gnomon`, and `app`, open on SQLite, unless it makes one itself. `between` is run
before the block of that number; `instead` says what a text of the page is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

POSTGRES = "postgresql://gnomon@localhost/gnomon"


@dataclass(frozen=True, slots=True)
class Prelude:
    """Beside what every page has."""

    code: str = ""
    between: Mapping[int, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)
    needs_postgres: bool = False  # then `app` is on it, and `dsn` and `schema` are given
    makes_app: bool = False


FUNCTIONS = """
@app.action
async def remind(ctx: gnomon.Attempt, user: str) -> None: ...

@app.action
async def report(ctx: gnomon.Attempt) -> None: ...

@app.action
async def send_mail(ctx: gnomon.Attempt, user: int) -> None: ...
"""
IN_A_TRANSACTION = """
import asyncpg
from datetime import UTC, datetime, timedelta
tomorrow = datetime.now(UTC) + timedelta(days=1)
asyncpg_connection = connection = await asyncpg.connect(dsn)
await connection.execute("CREATE TEMPORARY TABLE orders (id int)")
"""

IN_A_SESSION = """
from sqlalchemy import Integer, NullPool, Text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, mapped_column
engine = create_async_engine(dsn.replace("postgresql:", "postgresql+asyncpg:"), poolclass=NullPool)
class Base(DeclarativeBase): ...
class Order(Base):
    __tablename__ = "orders"
    __table_args__ = {"schema": schema}
    id = mapped_column(Integer, primary_key=True)
    user = mapped_column(Text)
async with engine.begin() as sqlalchemy_connection:
    await sqlalchemy_connection.run_sync(Base.metadata.create_all)
"""

PRELUDES = {
    "README.md": Prelude(
        code=FUNCTIONS
        + IN_A_TRANSACTION
        + """
from gnomon.stages import Update, Wake
def end_of(ad): return datetime.fromisoformat(ad["published_at"]) + timedelta(days=180)
import gnomon.stages
""",
        needs_postgres=True,
    ),
    "docs/howto/transaction.md": Prelude(
        code=FUNCTIONS + IN_A_TRANSACTION + IN_A_SESSION, needs_postgres=True
    ),
    "docs/howto/retry.md": Prelude(code="from datetime import timedelta" + FUNCTIONS),
    "docs/howto/queues.md": Prelude(code=FUNCTIONS),
    "docs/howto/change.md": Prelude(code=FUNCTIONS + "\ndef write(row): ...\n"),
    "docs/howto/functions.md": Prelude(code="async def already_charged(key): return True\n"),
    "docs/howto/push.md": Prelude(code="from datetime import timedelta\n"),
    "docs/howto/authentication.md": Prelude(code='token = "gnomon_x"\n'),
    "docs/howto/coming-from.md": Prelude(between={3: "await app.open()"}, makes_app=True),
    "docs/howto/http.md": Prelude(
        code="""
import base64, hmac
from datetime import UTC, datetime
KEY = "whsec_" + base64.b64encode(bytes(32)).decode()
key, id, timestamp, body, header = bytes(32), "a", "1", b"{}", "v1,x"
def already_done(key): return False
def do_it(body): ...
""",
    ),
    "docs/howto/stages.md": Prelude(
        code="got = 1\n",
        between={
            1: """
import asyncio
class Photos(Stage[Ad, dict]):
    name, watch, writes = "photos", ("photos",), ("cover",)
    def should_process(self, it): return False
    async def process(self, it): return Update()
ads.add(Photos())
await app.open(migrate=True)
stop = asyncio.Event()
work = asyncio.create_task(app.work(stop))  # which makes the stages known
while len(await app.entities.stages()) < 2:
    await asyncio.sleep(0.05)
stop.set()
await work
""",
            4: 'await ads.put("ad-1", {"status": "draft"})',
            5: 'open("ca.pem", "w").close()',
        },
        instead={"/etc/gnomon/ca.pem": "ca.pem"},
        needs_postgres=True,
        makes_app=True,
    ),
}
