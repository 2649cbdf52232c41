"""The disk cache: entries appear whole or not at all, damage is noticed, and an unusable folder says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from stridewright.codegen import cache as cache_module
from stridewright.codegen.cache import Cache, CacheError, default_folder

FILES = {"kernel.ptx": b"some ptx", "kernel.cubin": bytes(range(256)), "log.txt": b""}
FACTS = {"name": "kernel.cu", "arch": "sm_90a", "compiler": "nvrtc-13.0-1", "options": []}


def saved(cache: Cache, source: str = "source") -> str:
    key = cache.key(source, "sm_90a", (), "kernel.cu", "nvrtc-13.0-1")
    with cache.locked(key):
        cache.save(key, FILES, FACTS)
    return key


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    key = saved(cache)
    entry = cache.load(key)
    assert entry is not None
    assert dict(entry.files) == FILES
    assert dict(entry.facts) == FACTS
    assert cache.load(key[:-1] + "x") is None


def test_making_a_cache_and_looking_into_it_write_nothing(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "absent")
    assert cache.load("0" * 32) is None
    assert cache.entries() == ()
    assert cache.clear() == (0, 0)
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
@pytest.mark.parametrize("damage", ["truncate", "change", "remove", "empty"])
def test_any_damage_to_any_file_is_noticed_and_mended(tmp_path: Path, name: str, damage: str) -> None:
    cache = Cache(tmp_path)
    key = saved(cache)
    path = tmp_path / "kernels-1" / key / name
    before = path.read_bytes()
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes({"truncate": before[:-1], "change": before[:-1] + b"?", "empty": b""}[damage])
        if path.read_bytes() == before:  # log.txt is empty already
            path.write_bytes(b"more")
    assert cache.load(key) is None
    (listed,) = cache.entries()
    assert not listed.intact
    saved(cache)
    entry = cache.load(key)
    assert entry is not None
    assert dict(entry.files) == FILES
    assert [path.name for path in (tmp_path / "kernels-1").iterdir()] == [key]


def test_manifest_of_another_shape_is_corrupt_not_a_crash(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    key = saved(cache)
    for text in ("[]", "3", '{"files": 3}', '{"files": {"kernel.ptx": 1}}', "null", '{"files": {"../../x": "a"}}'):
        (tmp_path / "kernels-1" / key / "manifest.json").write_text(text)
        assert cache.load(key) is None
        assert not cache.entries()[0].intact


def test_a_failed_save_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)
    real = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        if self.name == "kernel.cubin":
            raise OSError(28, "No space left on device")
        return real(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CacheError, match="No space left on device"):
        saved(cache)
    monkeypatch.undo()
    assert list((tmp_path / "kernels-1").iterdir()) == []
    saved(cache)
    assert len(cache.entries()) == 1


def test_folder_that_cannot_be_made_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file" / "cache")
    with pytest.raises(CacheError, match=r"file/cache cannot be written .*STRIDEWRIGHT_CACHE_DIR"), cache.locked("0"):
        pytest.fail("the lock must not be given")


def test_read_only_folder_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)
    monkeypatch.setattr(cache_module.os, "access", lambda path, mode: False)  # the superuser may write anywhere
    with pytest.raises(CacheError, match="Permission denied"), cache.locked("0"):
        pytest.fail("the lock must not be given")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write to a read-only folder")
def test_read_only_folder_still_serves_what_it_holds(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    key = saved(cache)
    (tmp_path / "kernels-1").chmod(0o555)
    try:
        assert cache.load(key) is not None
        with pytest.raises(CacheError):
            saved(cache, "another")
    finally:
        (tmp_path / "kernels-1").chmod(0o755)


def test_environment_moves_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIDEWRIGHT_CACHE_DIR", str(tmp_path / "here"))
    assert default_folder() == tmp_path / "here"
    assert Cache().folder == tmp_path / "here"
    monkeypatch.setenv("STRIDEWRIGHT_CACHE_DIR", "~/there")
    assert default_folder() == Path.home() / "there"
    monkeypatch.delenv("STRIDEWRIGHT_CACHE_DIR")
    assert "stridewright" in str(default_folder())


def test_keys_differ_where_anything_differs_and_only_there(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    base = ("source", "sm_90a", ("-a", "-b"), "kernel.cu", "nvrtc-13.0-1")
    variants = [
        ("source2", *base[1:]),
        (base[0], "sm_100a", *base[2:]),
        (*base[:2], ("-a-b",), *base[3:]),
        (*base[:2], ("-a", "-b", ""), *base[3:]),
        (*base[:3], "other.cu", base[4]),
        (*base[:4], "nvrtc-13.5-1"),
    ]
    keys = {cache.key(*variant) for variant in [base, *variants]}
    assert len(keys) == len(variants) + 1
    assert cache.key(*base) == Cache(tmp_path / "elsewhere").key(*base)


def test_find_takes_an_unambiguous_beginning(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    keys = {saved(cache, source) for source in "abc"}
    for key in keys:
        assert cache.find(key[:12]).key == key
    with pytest.raises(LookupError, match="3 entries"):
        cache.find("")
    with pytest.raises(LookupError, match="0 entries"):
        cache.find("zz")


def test_clear_removes_entries_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    cache = Cache(tmp_path)
    for source in "abc":
        saved(cache, source)
    size = sum(entry.size for entry in cache.entries())
    assert cache.clear() == (3, size)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert cache.entries() == ()


def test_many_processes_make_an_entry_once(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from stridewright.codegen.cache import Cache
        cache = Cache(sys.argv[1])
        key = cache.key("s", "sm_90a", (), "k", "c")
        if cache.load(key) is None:
            with cache.locked(key):
                if cache.load(key) is None:
                    time.sleep(0.3)
                    cache.save(key, {"kernel.ptx": b"ptx"}, {})
                    print("made")
        assert cache.load(key) is not None
        """
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    outputs = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0] * 4
    assert "".join(outputs).count("made") == 1


def test_manifest_records_how_the_entry_was_made(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    key = saved(cache)
    manifest = json.loads((tmp_path / "kernels-1" / key / "manifest.json").read_text())
    assert manifest["facts"] == FACTS
    assert set(manifest["files"]) == set(FILES)
