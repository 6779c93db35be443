"""Grids of processes, their parts and their groups."""

import pytest

import weft.distributed as dist
from weft.distributed import DeviceMesh, init_device_mesh


def grids():
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    assert (mesh.ndim, mesh.shape, mesh.size(), mesh.size(1)) == (2, (2, 2), 4, 2)
    assert mesh.mesh.tolist() == [[0, 1], [2, 3]]
    assert mesh.get_coordinate() == [rank // 2, rank % 2]
    rows, columns = mesh["dp"], mesh["tp"]
    assert rows.mesh.tolist() == [rank % 2, rank % 2 + 2]
    assert columns.mesh.tolist() == [rank - rank % 2, rank - rank % 2 + 1]
    assert mesh["tp"] is columns
    assert mesh["dp", "tp"] is mesh
    assert list(columns.get_group().ranks) == columns.mesh.tolist()
    assert mesh.get_group("tp") is columns.get_group()
    assert mesh.get_local_rank("dp") == rows.get_local_rank() == rank // 2
    assert len(mesh.get_all_groups()) == 2
    assert dist.get_world_size(mesh.get_group(0)) == 2
    assert mesh == DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))
    assert mesh != columns
    assert repr(mesh) == "DeviceMesh((dp=2, tp=2), 'cpu', [[0, 1], [2, 3]])"
    for wrong, words in (
        ("pp", "Invalid mesh_dim_name"), (("tp", "dp"), "in the mesh's order"),
    ):  # fmt: skip
        with pytest.raises(KeyError, match=words):
            mesh[wrong]
    with pytest.raises(RuntimeError, match="mesh_dim must say which one"):
        mesh.get_group()
    with pytest.raises(ValueError, match="expected a dimension of a mesh of 2, got 2"):
        mesh.size(2)
    deep = init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("pp", "dp", "tp"))
    assert deep["pp", "tp"].shape == (2, 2)
    assert deep["dp"].mesh.tolist() == [rank]


def smaller():
    mesh = init_device_mesh("cpu", (2,))
    if dist.get_rank() < 2:
        assert mesh.get_coordinate() == [dist.get_rank()]
    else:
        assert mesh.get_coordinate() is None
        with pytest.raises(ValueError, match="is not in DeviceMesh"):
            mesh.get_group()
    every = init_device_mesh("cpu", (4,))
    assert every.get_group() is dist.group.WORLD
    assert DeviceMesh.from_group(every.get_group(), "cpu").shape == (4,)


def test_on_four_ranks(worlds):
    worlds.ok(grids, 4)
    worlds.ok(smaller, 4)


@pytest.fixture
def alone():
    dist.init_process_group(rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: init_device_mesh("cpu", (2, 2)), RuntimeError, "world size 1, but"),
        (lambda: init_device_mesh("cuda", (1,)), RuntimeError, "no collectives on"),
        (lambda: init_device_mesh("cpu", ()), ValueError, "sizes above 0"),
        (lambda: init_device_mesh("cpu", (0,)), ValueError, "sizes above 0"),
        (
            lambda: init_device_mesh("cpu", (1, 1), mesh_dim_names=("a",)),
            RuntimeError, "same length",
        ),
        (
            lambda: init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "a")),
            RuntimeError, "must be unique",
        ),
        (lambda: DeviceMesh("cpu", [0, 0]), ValueError, "expected different ranks"),
        (lambda: DeviceMesh("cpu", [3]), ValueError, "different ranks from 0 to 0"),
        (lambda: DeviceMesh("cpu", [0.5]), TypeError, "expected ranks as a mesh"),
        (lambda: init_device_mesh("cpu", (1,))["a"], KeyError, "without mesh_dim"),
    ],
)  # fmt: skip
def test_wrong_meshes(alone, make, kind, words):
    with pytest.raises(kind, match=words):
        make()
