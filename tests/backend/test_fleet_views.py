"""Saved views of the fleet page: whose they are, who may share and delete them."""

import pytest
from tests.backend.conftest import PASSWORD, Backend, Client

from coresteer.fleet import views

PATH = "/api/v1/fleet-views"


def _body(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "search": "view=table&sort=-softirq&compare=1d"} | more


async def _names(client: Client) -> list[str]:
    return [view["name"] for view in (await client.get(PATH)).json()]


async def test_a_view_is_its_users_own_unless_an_operator_shares_it(backend: Backend) -> None:
    viewer, operator, admin = [await backend.client(role) for role in ("viewer", "operator", "admin")]
    own = await viewer.post(PATH, _body("my databases"))
    assert (own.status_code, own.json()["search"]) == (201, "view=table&sort=-softirq&compare=1d")
    assert (await viewer.post(PATH, _body("all", shared=True))).status_code == 403
    shared = (await operator.post(PATH, _body("all databases", shared=True))).json()
    assert await _names(viewer) == ["all databases", "my databases"]
    assert await _names(admin) == ["all databases"]

    assert (await operator.delete(f"{PATH}/{own.json()['id']}")).status_code == 404
    assert (await viewer.delete(f"{PATH}/{shared['id']}")).status_code == 403
    assert (await admin.delete(f"{PATH}/{shared['id']}")).status_code == 204
    assert (await viewer.delete(f"{PATH}/{own.json()['id']}")).status_code == 204
    assert await _names(viewer) == []
    entries = (await admin.get("/api/v1/audit")).json()["entries"]
    assert {("fleet-view.create", "all databases"), ("fleet-view.delete", "all databases")} <= {
        (entry["action"], entry["target"]) for entry in entries
    }


async def test_a_user_has_each_name_once_and_a_bounded_number_of_views(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "MAX_VIEWS", 1)
    operator = await backend.client("operator")
    made = (await operator.post(PATH, _body("one"))).json()
    again = await operator.post(PATH, _body("one"))
    assert (again.status_code, again.json()["errors"][0]["field"]) == (422, "name")
    assert (await operator.post(PATH, _body("two"))).status_code == 409
    await operator.delete(f"{PATH}/{made['id']}")


async def test_a_deleted_users_own_views_are_deleted_and_shared_ones_stay(backend: Backend) -> None:
    admin = await backend.client("admin")
    leaver = {"username": "view-leaver", "password": PASSWORD, "role": "operator"}
    user_id = (await admin.post("/api/v1/users", leaver)).json()["id"]
    client = backend.anonymous()
    me = (await client.post("/api/v1/auth/login", {"username": "view-leaver", "password": PASSWORD})).json()
    client.session.headers["X-CSRF-Token"] = me["csrf_token"]
    for name, shared in (("hers", False), ("everyone's", True)):
        assert (await client.post(PATH, _body(name, shared=shared))).status_code == 201
    assert (await admin.delete(f"/api/v1/users/{user_id}")).status_code == 204
    (left,) = (await admin.get(PATH)).json()
    assert (left["name"], left["created_by"]) == ("everyone's", f"(deleted user {user_id})")
    await admin.delete(f"{PATH}/{left['id']}")
