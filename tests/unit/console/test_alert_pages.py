"""The page of alerts."""

from __future__ import annotations

from visitor import Visitor, visit

from ottla.console.alert_rules import AlertFinding
from ottla.console.alert_watch import AlertWatch

NAME = "<script>alert(1)</script>"


def test_alerts_are_shown(ottla_broker):
    """Firing, ended and rules; hostile names are text, and the webhook's address stays secret."""

    async def walk(visitor: Visitor) -> None:
        assert "No alert fires" in (await visitor.get("/alerts")).text
        book = visitor.app.cluster.part(AlertWatch).book
        finding = AlertFinding(NAME, f"group {NAME} stands", "/group?id=x")
        book.update("stuck", [finding], 1_000)
        page = (await visitor.get("/alerts")).text
        assert NAME not in page
        assert "&lt;script&gt;" in page
        assert "hooks.example" in page
        assert "T0K3N" not in page
        assert "5 min" in page
        assert NAME in (await visitor.get("/overview.json")).json["attention"][0]["text"]
        book.update("stuck", [], 90_000)
        data = (await visitor.get("/alerts.json")).json
        assert (data["firing"], data["ended"][0]["ended_ms"]) == ([], 90_000)
        assert data["rules"]["disk"] == -1
        assert "T0K3N" not in str(data)

    url = "https://hooks.example/T0K3N"
    visit(ottla_broker.bootstrap_servers, walk, webhook=url, alerts={"disk": -1})
