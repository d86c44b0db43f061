"""What a user has after `pip install .[spark]`: a format that Spark finds, and clear words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 900
SESSION = """
from pathlib import Path
import sys
from pyspark.sql import SparkSession
import ottla
from ottla.testing.processes import BrokerProcess

broker = BrokerProcess(Path(sys.argv[1])).start()
spark = SparkSession.builder.master("local[2]").getOrCreate()
servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
try:
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([ottla.NewTopic("pages", 2)])
    rows = spark.range(1000).selectExpr("string(id) AS value")
    rows.write.format("ottla").options(**servers, topic="pages").mode("append").save()
    read = spark.read.format("ottla").options(**servers)
    print("rows:", read.option("subscribe", "pages").load().count())
    try:
        spark.read.format("ottla").options(**servers).option("subscrib", "pages").load()
    except Exception as error:
        print("told:", [line for line in str(error).splitlines() if line.startswith("ottla.")])
finally:
    spark.stop()
    broker.stop()
"""


def test_spark_finds_the_format_in_a_fresh_environment(java, tmp_path):
    """No registration, a round trip, and one line about a broken option."""
    fresh = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(fresh)], check=True)
    python = str(fresh / "bin" / "python")
    install = [python, "-m", "pip", "install", "-q", f"{ROOT}[spark]"]
    subprocess.run(install, check=True, timeout=LIMIT_SECONDS, cwd=tmp_path)

    done = subprocess.run(
        [python, "-c", SESSION, str(tmp_path / "data")],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": f"{fresh / 'bin'}:/usr/bin:/bin", "PYSPARK_PYTHON": python},
        text=True,
        timeout=LIMIT_SECONDS,
    )

    assert "rows: 1000" in done.stdout, done.stderr[-5000:]
    assert "subscrib=pages: there is no such option; did you mean subscribe?" in done.stdout
