"""A refusal by RBAC counts only if repeated: a restarted API server has no roles for a second."""

import pytest

from jobs.cluster.client.errors import Forbidden
from jobs.cluster.client.http_client import Response
from jobs.run import creation

RBAC = 'jobs.batch is forbidden: User "t" cannot create resource "jobs" in API group "batch" in the namespace "team"'
QUOTA = 'pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=4, limited: pods=4'


@pytest.fixture
def create(monkeypatch):
    """Create with these answers of a server, one per second; the last one repeats."""
    clock = [100.0]
    monkeypatch.setattr(creation.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(creation.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))

    def run(*answers):
        asked = []

        def once():
            asked.append(answers[min(len(asked), len(answers) - 1)])
            if asked[-1]:
                raise Forbidden("jobs", status=403, reason="Forbidden", message=asked[-1])
            return Response(201, {})

        try:
            return creation.roles_known(once).status, len(asked)
        except Forbidden as error:
            return error.status, len(asked)

    return run


def test_a_refusal_of_a_moment_is_none(create):
    assert create(RBAC, RBAC, "") == (201, 3)
    assert create("") == (201, 1)


def test_a_refusal_that_lasts_is_reported_after_seconds(create):
    """The wait is not longer than a server needs to read its roles."""
    status, asked = create(RBAC)
    assert status == 403
    assert creation.RIGHTS_S < asked <= creation.RIGHTS_S + 2


def test_what_admission_refuses_is_final_at_once(create):
    """A quota or a policy also returns 403, after evaluation."""
    assert create(QUOTA, "") == (403, 1)
