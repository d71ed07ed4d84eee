"""The data sets by name, on small files in the real layouts, and on the real files where they are at hand."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from hoarfrost.data.arrays import fit_to
from hoarfrost.data.datasets import DATASETS, load_dataset, read_images, read_npz
from hoarfrost.data.download import unpack
from hoarfrost.data.images import ImageSet
from hoarfrost.errors import DtypeError, InputError

WORDNET_IDS = ("n01443537", "n01629819", "n01641577")


def random_images(shape: tuple[int, ...], seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def labels_of(images: ImageSet) -> list[int]:
    assert images.labels is not None
    labels: list[int] = images.labels.tolist()
    return labels


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def write_npz(path: Path, arrays: dict[str, ArrayLike]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.save(file, array)


def write_pickle(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=4))


def write_cifar10(data: Path) -> NDArray[np.uint8]:
    """A CIFAR-10 of 4 images a file; returns its rows (24, 3072), the test images last."""
    folder, rows = data / "cifar-10-batches-py", random_images((24, 3072))
    for i in range(5):
        part = rows[i * 4 : i * 4 + 4]
        write_pickle(folder / f"data_batch_{i + 1}", {"data": part, "labels": [i % 3, 1, 2, 0]})
    write_pickle(folder / "test_batch", {"data": rows[20:], "labels": [0, 1, 2, 2]})
    write_pickle(folder / "batches.meta", {"label_names": ["airplane", "bird", "cat"]})
    return rows


def write_cifar100(data: Path) -> NDArray[np.uint8]:
    folder, rows = data / "cifar-100-python", random_images((6, 3072))
    write_pickle(folder / "train", {"data": rows[:4], "fine_labels": [1, 0, 1, 0], "coarse_labels": [0, 0, 0, 0]})
    write_pickle(folder / "test", {"data": rows[4:], "fine_labels": [0, 1], "coarse_labels": [0, 0]})
    write_pickle(folder / "meta", {"fine_label_names": ["apple", "bee"], "coarse_label_names": ["thing"]})
    return rows


def write_tiny_imagenet(data: Path) -> Path:
    folder = data / "tiny-imagenet-200"
    for i, name in enumerate(WORDNET_IDS):
        images = folder / "train" / name / "images"
        images.mkdir(parents=True)
        for j in range(2):
            Image.new("RGB", (64, 64), (50 * i, 100, 20 * j)).save(images / f"{name}_{j}.JPEG")
    (folder / "val" / "images").mkdir(parents=True)
    Image.new("L", (64, 64), 77).save(folder / "val" / "images" / "val_0.JPEG")
    Image.new("RGB", (64, 64), (1, 2, 3)).save(folder / "val" / "images" / "val_1.JPEG")
    (folder / "val" / "val_annotations.txt").write_text(
        f"val_0.JPEG\t{WORDNET_IDS[2]}\t0\t32\t44\t62\nval_1.JPEG\t{WORDNET_IDS[0]}\t52\t55\t57\t59\n"
    )
    (folder / "wnids.txt").write_text("\n".join(reversed(WORDNET_IDS)))
    return folder


def write_classes(folder: Path, counts: dict[str, int], *, side: int = 16, mode: str = "RGB") -> None:
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(random_images((side, side, 3), i)).convert(mode).save(folder / name / f"{i}.png")


def planes_last(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The images of CIFAR rows, pixel by pixel."""
    images = np.empty((len(rows), 32, 32, 3), dtype=np.uint8)
    for channel in range(3):
        for y in range(32):
            for x in range(32):
                images[:, y, x, channel] = rows[:, channel * 1024 + y * 32 + x]
    return images


def test_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'cifar100'"):
        load_dataset("cifar-100", ".")


class TestDigits:
    def test_the_fixed_quarter(self) -> None:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        digits = load_digits()
        expected = train_test_split(
            digits.images, digits.target, test_size=0.25, stratify=digits.target, random_state=0
        )
        train, test = load_dataset("digits", None)
        assert (len(train), len(test), train.shape) == (1347, 450, (8, 8, 1))
        assert train.class_names == test.class_names == tuple("0123456789")
        assert (labels_of(train), labels_of(test)) == (expected[2].tolist(), expected[3].tolist())
        for images, values in ((train, expected[0]), (test, expected[1])):
            pixels = images.pixels(slice(None))[..., 0]
            np.testing.assert_array_equal(np.round(pixels * (16 / 255)), values)
            assert (pixels.min(), pixels.max()) == (0, 255)

    def test_size(self) -> None:
        small, large = load_dataset("digits", None)[1], load_dataset("digits", None, size=16)[1]
        np.testing.assert_array_equal(large.pixels(slice(None)), fit_to(small.pixels(slice(None)), 16, 1))


class TestCifar:
    @pytest.mark.parametrize("itself", [False, True])
    def test_cifar10(self, tmp_path: Path, itself: bool) -> None:
        images = planes_last(write_cifar10(tmp_path))
        train, test = load_dataset("cifar10", tmp_path / "cifar-10-batches-py" if itself else str(tmp_path))
        np.testing.assert_array_equal(train.pixels(slice(None)), images[:20])
        np.testing.assert_array_equal(test.pixels(slice(None)), images[20:])
        assert labels_of(train) == [0, 1, 2, 0, 1, 1, 2, 0, 2, 1, 2, 0, 0, 1, 2, 0, 1, 1, 2, 0]
        assert labels_of(test) == [0, 1, 2, 2]
        assert train.class_names == test.class_names == ("airplane", "bird", "cat")

    def test_cifar100_has_the_fine_labels(self, tmp_path: Path) -> None:
        images = planes_last(write_cifar100(tmp_path))
        train, test = load_dataset("cifar100", tmp_path, size=16)
        np.testing.assert_array_equal(train.pixels(slice(None)), fit_to(images[:4], 16, 3))
        np.testing.assert_array_equal(test.pixels(slice(None)), fit_to(images[4:], 16, 3))
        assert (labels_of(train), labels_of(test)) == ([1, 0, 1, 0], [0, 1])
        assert train.class_names == ("apple", "bee")

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("train", {"data": np.zeros((4, 3072), np.uint8)}, "train lacks 'fine_labels'"),
            ("train", [1, 2], "train lacks 'data'"),
            ("train", {"data": np.zeros((4, 3071), np.uint8), "fine_labels": [0] * 4}, "'data' in .*train"),
            ("train", {"data": np.zeros((4, 3072)), "fine_labels": [0] * 4}, "'data' in .*train"),
            ("train", {"data": [[0] * 3072], "fine_labels": [0]}, "'data' in .*train"),
            ("test", {"data": np.zeros((4, 3072), np.uint8), "fine_labels": [0] * 3}, "each of the 4 images"),
            ("test", {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [0, 2]}, "outside its 2 classes"),
            ("test", {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [0, -1]}, "outside its 2 classes"),
            ("test", {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [0, [1]]}, "each of the 2 images"),
            ("test", {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [[0], [1, 1]]}, "each of the 2 images"),
            ("test", {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [0, 1.5]}, "each of the 2 images"),
            ("test", {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [0, 2**70]}, "each of the 2 images"),
            ("test", {"data": np.zeros((2, 3072), np.uint8), "fine_labels": {0: 1}}, "each of the 2 images"),
            ("meta", {"fine_label_names": ["apple", "\ud800"]}, "class name .* cannot be written"),
            ("meta", {"fine_label_names": "apple"}, "'fine_label_names' in .*meta"),
        ],
    )
    def test_wrong_content_is_named(self, tmp_path: Path, name: str, content: object, message: str) -> None:
        write_cifar100(tmp_path)
        write_pickle(tmp_path / "cifar-100-python" / name, content)
        with pytest.raises(InputError, match=message):
            load_dataset("cifar100", tmp_path)

    def test_missing_file_is_named(self, tmp_path: Path) -> None:
        write_cifar10(tmp_path)
        (tmp_path / "cifar-10-batches-py" / "data_batch_3").unlink()
        with pytest.raises(InputError, match=r"cannot read .*data_batch_3"):
            load_dataset("cifar10", tmp_path)


class TestTinyImageNet:
    @pytest.mark.parametrize("with_ids", [True, False])
    def test_sorted_wordnet_ids_and_val_as_test(self, tmp_path: Path, with_ids: bool) -> None:
        folder = write_tiny_imagenet(tmp_path)
        if not with_ids:
            (folder / "wnids.txt").unlink()
        train, test = load_dataset("tiny-imagenet", tmp_path)
        assert train.class_names == test.class_names == WORDNET_IDS
        assert (labels_of(train), labels_of(test)) == ([0, 0, 1, 1, 2, 2], [2, 0])
        assert (train.shape, test.shape) == ((64, 64, 3), (64, 64, 3))
        pixels = train.pixels(slice(None)).astype(int)
        for row, colour in enumerate([(0, 100, 0), (0, 100, 20), (50, 100, 0), (50, 100, 20), (100, 100, 0)]):
            assert np.abs(pixels[row] - colour).max() <= 3
        assert (test.pixels([0]) == 77).all()

    def test_size(self, tmp_path: Path) -> None:
        write_tiny_imagenet(tmp_path)
        whole = load_dataset("tiny-imagenet", tmp_path)[0].pixels(slice(None))
        small = load_dataset("tiny-imagenet", tmp_path, size=32)[0].pixels(slice(None))
        np.testing.assert_array_equal(small, fit_to(whole, 32, 3))

    def test_broken_parts_are_named(self, tmp_path: Path) -> None:
        folder = write_tiny_imagenet(tmp_path)
        broken = folder / "val" / "images" / "val_1.JPEG"
        broken.write_bytes(broken.read_bytes()[:300])
        with pytest.raises(InputError, match=r"val_1\.JPEG"):
            load_dataset("tiny-imagenet", tmp_path)
        (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn99999999\t0\t0\t0\t0\n")
        with pytest.raises(InputError, match=r"val_annotations.txt names the class 'n99999999'"):
            load_dataset("tiny-imagenet", tmp_path)
        (folder / "val" / "val_annotations.txt").unlink()
        with pytest.raises(InputError, match=r"cannot read .*val_annotations.txt"):
            load_dataset("tiny-imagenet", tmp_path)
        for path in (folder / "train" / WORDNET_IDS[1] / "images").iterdir():
            path.unlink()
        with pytest.raises(InputError, match=rf"no JPEG files in .*{WORDNET_IDS[1]}"):
            load_dataset("tiny-imagenet", tmp_path)


class TestFolder:
    @pytest.mark.parametrize("test_name", ["test", "val"])
    def test_train_and_test(self, tmp_path: Path, test_name: str) -> None:
        write_classes(tmp_path / "train", {"ant": 3, "bee": 2, "cat": 2}, side=24, mode="L")
        write_classes(tmp_path / test_name, {"bee": 1, "cat": 2}, side=40)
        train, test = load_dataset("folder", tmp_path)
        assert train.shape == test.shape == (24, 24, 1)
        assert train.class_names == test.class_names == ("ant", "bee", "cat")
        assert (labels_of(train), labels_of(test)) == ([0, 0, 0, 1, 1, 2, 2], [1, 2, 2])

    def test_a_class_only_in_the_test_set(self, tmp_path: Path) -> None:
        write_classes(tmp_path / "train", {"ant": 1, "bee": 1})
        write_classes(tmp_path / "test", {"ant": 1, "dog": 1})
        with pytest.raises(InputError, match="has the class 'dog', which"):
            load_dataset("folder", tmp_path)

    def test_one_folder_gives_a_stratified_quarter(self, tmp_path: Path) -> None:
        write_classes(tmp_path, {"ant": 8, "bee": 4})
        train, test = load_dataset("folder", tmp_path, size=8)
        assert (sorted(labels_of(train)), sorted(labels_of(test))) == ([0] * 6 + [1] * 3, [0, 0, 1])
        assert train.paths is not None
        assert test.paths is not None
        assert len({*train.paths, *test.paths}) == 12
        assert train.shape == (8, 8, 3)
        assert load_dataset("folder", tmp_path, size=8)[1].paths == test.paths

    def test_too_few_for_a_quarter(self, tmp_path: Path) -> None:
        write_classes(tmp_path, {"ant": 8, "bee": 3})
        with pytest.raises(InputError, match=r"class 'bee' in .* has 3 images"):
            load_dataset("folder", tmp_path)

    def test_no_data(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="--data DIR"):
            load_dataset("folder", None)
        with pytest.raises(InputError, match="there is no file or folder"):
            load_dataset("folder", tmp_path / "nowhere")

    @pytest.mark.skipif(os.geteuid() == 0, reason="no folder is closed to the superuser")
    @pytest.mark.parametrize("name", ["folder", "cifar10", "tiny-imagenet"])
    def test_closed_folder(self, tmp_path: Path, name: str) -> None:
        tmp_path.chmod(0)
        try:
            with pytest.raises(InputError, match=r"cannot open .*: Permission denied"):
                load_dataset(name, tmp_path / "data")
        finally:
            tmp_path.chmod(0o755)


class TestNpz:
    images = random_images((8, 8, 8, 3))
    labels = np.array(["bee", "ant"] * 4)
    parts: ClassVar[dict[str, ArrayLike]] = {
        "x_train": images,
        "y_train": [7, 9] * 4,
        "x_test": images[:3],
        "y_test": [9, 9, 9],
    }

    @pytest.mark.parametrize("keys", [("images", "labels"), ("x", "y"), ("x_train", "y_train")])
    def test_names_of_the_arrays(self, tmp_path: Path, keys: tuple[str, str]) -> None:
        path = tmp_path / "images.npz"
        write_npz(path, {keys[0]: self.images, keys[1]: self.labels})
        images = read_npz(path)
        np.testing.assert_array_equal(images.pixels(slice(None)), self.images)
        assert images.class_names == ("ant", "bee")
        assert labels_of(images) == [1, 0] * 4

    def test_without_labels(self, tmp_path: Path) -> None:
        path = tmp_path / "images.npz"
        np.savez_compressed(path, images=self.images)
        assert read_npz(path).labels is None
        assert len(read_images(path, labelled=False)) == 8
        with pytest.raises(InputError, match="has no labels"):
            read_images(path, labelled=True)

    def test_read_images_converts_only_what_is_asked_for(self, tmp_path: Path) -> None:
        path = tmp_path / "images.npz"
        wide = random_images((2, 8, 12, 3))
        np.savez(path, images=wide, labels=[0, 1])
        assert read_images(path, labelled=True).shape == (8, 12, 3)
        assert read_images(path, labelled=True, channels=1).shape == (8, 12, 1)
        fitted = read_images(path, labelled=True, size=16, channels=1)
        np.testing.assert_array_equal(fitted.pixels(slice(None)), fit_to(wide, 16, 1))
        assert read_images(path, labelled=False).labels is None

    def test_as_a_data_set(self, tmp_path: Path) -> None:
        path = tmp_path / "images.npz"
        np.savez(path, images=self.images, labels=self.labels)
        train, test = load_dataset("folder", path)
        assert (sorted(labels_of(train)), sorted(labels_of(test))) == ([0, 0, 0, 1, 1, 1], [0, 1])
        write_npz(path, self.parts)
        train, test = load_dataset("folder", path, size=16)
        assert train.class_names == test.class_names == ("7", "9")
        assert (labels_of(train), labels_of(test)) == ([0, 1] * 4, [1, 1, 1])
        np.testing.assert_array_equal(test.pixels(slice(None)), fit_to(self.images[:3], 16, 3))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"y_test": [9, 9, 8]}, "has the class '8', which y_train lacks"),
            ({"y_train": [7, 9]}, r"'y_train' in .* has the shape \(2,\) for 8 images"),
            ({"y_test": [[9], [9], [9]]}, r"'y_test' in .* has the shape \(3, 1\)"),
            ({"x_test": random_images((3, 9, 9, 3))}, "differ in image size"),
            ({"y_train": None}, "not 'y_train': add it"),
        ],
    )
    def test_bad_splits(self, tmp_path: Path, changes: dict[str, ArrayLike], message: str) -> None:
        path = tmp_path / "images.npz"
        write_npz(path, {name: array for name, array in (self.parts | changes).items() if array is not None})
        with pytest.raises(InputError, match=message):
            load_dataset("folder", path)

    def test_garbage(self, tmp_path: Path) -> None:
        path = tmp_path / "images.npz"
        for content in (b"", b"garbage", b"PK\x03\x04garbage"):
            path.write_bytes(content)
            with pytest.raises(InputError, match=r"cannot read .*images\.npz"):
                read_images(path, labelled=False)
        np.savez(path, images=self.images)
        path.write_bytes(path.read_bytes()[:-50])
        with pytest.raises(InputError, match=r"cannot read .*images\.npz"):
            read_npz(path)
        with path.open("wb") as file:
            np.save(file, self.images)
        with pytest.raises(InputError, match="a single array"):
            read_npz(path)

    def test_pickled_objects_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "images.npz"
        np.savez(path, images=self.images, labels=np.array([{}, 1], dtype=object))
        with pytest.raises(InputError, match=r"not a .npz file of plain arrays"):
            read_npz(path)

    def test_the_file_is_named_in_every_complaint(self, tmp_path: Path) -> None:
        path = tmp_path / "images.npz"
        np.savez(path, images=self.images / 255)
        with pytest.raises(DtypeError, match=r"images\.npz: .*astype"):
            read_npz(path)
        np.savez(path, images=self.images, labels=[1, 2])
        with pytest.raises(InputError, match=r"images\.npz: there are 2 labels"):
            read_npz(path)
        np.savez(path, pictures=self.images)
        with pytest.raises(InputError, match=r"images\.npz holds pictures"):
            read_npz(path)

    def test_other_files(self, tmp_path: Path) -> None:
        (tmp_path / "images.csv").write_text("a,b")
        with pytest.raises(InputError, match=r"neither a folder of images nor a .npz file"):
            read_images(tmp_path / "images.csv", labelled=True)
        with pytest.raises(InputError, match=r"there is no .*nowhere\.npz"):
            read_images(tmp_path / "nowhere.npz", labelled=True)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class TestDownload:
    @pytest.fixture
    def site(self, tmp_path: Path) -> Iterator[tuple[Path, str]]:
        """A folder that is served, and its address."""
        folder = tmp_path / "site"
        folder.mkdir()
        with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            yield folder, f"http://127.0.0.1:{server.server_port}"
            server.shutdown()
            thread.join()

    def serve(self, monkeypatch: pytest.MonkeyPatch, name: str, archive: Path, address: str) -> None:
        md5 = hashlib.md5(archive.read_bytes()).hexdigest()
        entry = replace(DATASETS[name], url=f"{address}/{archive.name}", md5=md5, archive=archive.name)
        monkeypatch.setitem(DATASETS, name, entry)

    def test_missing_names_the_command(self, tmp_path: Path) -> None:
        data = tmp_path / "my data"
        with pytest.raises(InputError) as caught:
            load_dataset("cifar10", data)
        command = f"hoarfrost run --dataset cifar10 --data '{data}' --out runs/cifar10 --download"
        assert str(caught.value) == f"cifar10 is not in {data}: download it with: {command}"
        assert not data.exists()

    def test_tar(self, tmp_path: Path, site: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
        write_cifar10(tmp_path / "source")
        with tarfile.open(site[0] / "cifar.tar.gz", "w:gz") as tar:
            tar.add(tmp_path / "source" / "cifar-10-batches-py", "cifar-10-batches-py")
        self.serve(monkeypatch, "cifar10", site[0] / "cifar.tar.gz", site[1])
        train, _ = load_dataset("cifar10", tmp_path / "new" / "data", download=True)
        assert train.digest() == load_dataset("cifar10", tmp_path / "source")[0].digest()
        assert names_in(tmp_path / "new" / "data") == ["cifar-10-batches-py"]
        (site[0] / "cifar.tar.gz").unlink()
        load_dataset("cifar10", tmp_path / "new" / "data", download=True)  # what is there is not fetched again

    def test_zip(self, tmp_path: Path, site: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
        folder = write_tiny_imagenet(tmp_path / "source")
        with zipfile.ZipFile(site[0] / "tiny.zip", "w") as archive:
            archive.writestr("../../escaped.txt", "outside")
            for path in folder.rglob("*.*"):
                archive.write(path, path.relative_to(folder.parent))
        self.serve(monkeypatch, "tiny-imagenet", site[0] / "tiny.zip", site[1])
        assert len(load_dataset("tiny-imagenet", tmp_path / "data", download=True)[0]) == 6
        assert names_in(tmp_path / "data") == ["tiny-imagenet-200"]
        assert not list(tmp_path.rglob("escaped.txt"))

    def test_nothing_is_left_of_a_bad_archive(
        self, tmp_path: Path, site: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        archive, data = site[0] / "cifar.tar.gz", tmp_path / "data"

        def refused(match: str) -> None:
            with pytest.raises(InputError, match=match) as caught:
                load_dataset("cifar10", data, download=True)
            assert "\n" not in str(caught.value)
            assert names_in(data) == []

        with tarfile.open(archive, "w:gz") as tar:
            member = tarfile.TarInfo("cifar-10-batches-py/../../../escaped.txt")
            member.size = 4
            tar.addfile(member, io.BytesIO(b"text"))
        self.serve(monkeypatch, "cifar10", archive, site[1])
        refused("outside the destination")
        assert not list(tmp_path.rglob("escaped.txt"))

        with tarfile.open(archive, "w:gz") as tar:
            tar.add(__file__, "something-else.py")
        refused("hash")  # the table still has the sum of the first archive
        self.serve(monkeypatch, "cifar10", archive, site[1])
        refused("cifar-10-batches-py")

        (tmp_path / "numbers").write_text(" ".join(map(str, range(50_000))))  # which are packed, unlike random pixels
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(tmp_path / "numbers", "cifar-10-batches-py/numbers")
        whole = archive.read_bytes()
        for damaged in (whole[:100], whole[:40_000] + b"\xff" * 100 + whole[40_100:], b"\xfd7zXZ\0" + whole):
            archive.write_bytes(damaged)
            self.serve(monkeypatch, "cifar10", archive, site[1])
            refused("could not download cifar10")

        archive.unlink()
        refused("404")

    @pytest.mark.parametrize("without_filter", [False, True])
    def test_an_archive_of_files_and_folders(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_filter: bool
    ) -> None:
        if without_filter:  # as Python has it up to 3.11.3
            extractall = tarfile.TarFile.extractall

            def older(
                tar: tarfile.TarFile, path: str = ".", members: object = None, *, numeric_owner: bool = False
            ) -> None:
                extractall(tar, path, filter="data")

            monkeypatch.setattr(tarfile.TarFile, "extractall", older)
            monkeypatch.delattr(tarfile, "data_filter", raising=False)
        (tmp_path / "source" / "in" / "empty").mkdir(parents=True)
        (tmp_path / "source" / "in" / "file").write_bytes(b"content")
        (tmp_path / "source" / "in" / "file").chmod(0o4755)
        with tarfile.open(tmp_path / "some.tar.gz", "w:gz") as tar:
            tar.add(tmp_path / "source", "data")
        unpack(tmp_path / "some.tar.gz", tmp_path / "unpacked")
        assert sorted(str(path.relative_to(tmp_path / "unpacked")) for path in (tmp_path / "unpacked").rglob("*")) == [
            "data",
            "data/in",
            "data/in/empty",
            "data/in/file",
        ]
        made = tmp_path / "unpacked" / "data" / "in" / "file"
        assert made.read_bytes() == b"content"
        assert not made.stat().st_mode & 0o6111, "what is unpacked is not run"

    @pytest.mark.parametrize(
        ("name", "kind", "target"),
        [
            ("/tmp/away", tarfile.REGTYPE, ""),
            ("data/../../away", tarfile.REGTYPE, ""),
            ("../away", tarfile.DIRTYPE, ""),
            ("data/link", tarfile.SYMTYPE, "../../away"),
            ("data/link", tarfile.SYMTYPE, "file"),
            ("data/link", tarfile.LNKTYPE, "/etc/hostname"),
            ("data/pipe", tarfile.FIFOTYPE, ""),
            ("data/device", tarfile.CHRTYPE, ""),
        ],
    )
    def test_an_archive_with_anything_else(self, tmp_path: Path, name: str, kind: bytes, target: str) -> None:
        with tarfile.open(tmp_path / "some.tar.gz", "w:gz") as tar:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            tar.addfile(member)
        with pytest.raises(tarfile.TarError, match=r"outside the destination|neither a file nor a folder"):
            unpack(tmp_path / "some.tar.gz", tmp_path / "deep" / "unpacked")
        assert not list((tmp_path / "deep").rglob("*"))

    def test_no_network(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with ThreadingHTTPServer(("127.0.0.1", 0), QuietHandler) as server:
            port = server.server_port  # closed again when it is asked
        entry = replace(DATASETS["cifar10"], url=f"http://127.0.0.1:{port}/cifar.tar.gz")
        monkeypatch.setitem(DATASETS, "cifar10", entry)
        with pytest.raises(InputError, match=r"could not download cifar10 from http://127.0.0.1"):
            load_dataset("cifar10", tmp_path, download=True)
        assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "train_count", "shape", "classes", "some_names"),
    [
        ("cifar10", 50_000, (32, 32, 3), 10, {0: "airplane", 9: "truck"}),
        ("cifar100", 50_000, (32, 32, 3), 100, {0: "apple", 99: "worm"}),
        ("tiny-imagenet", 100_000, (64, 64, 3), 200, {0: "n01443537", 199: "n12267677"}),
    ],
)
def test_real_files(
    name: str, train_count: int, shape: tuple[int, int, int], classes: int, some_names: dict[int, str]
) -> None:
    data = os.environ.get("HOARFROST_DATA")
    if data is None:
        pytest.skip("HOARFROST_DATA names no folder with the real data sets")
    if not (Path(data) / DATASETS[name].marker).is_dir():
        pytest.skip(f"{name} is not in HOARFROST_DATA ({data})")
    train, test = load_dataset(name, data)
    assert (len(train), len(test), train.shape, test.shape) == (train_count, 10_000, shape, shape)
    assert len(train.class_names) == classes
    assert {i: train.class_names[i] for i in some_names} == some_names
    for images in (train, test):
        counts = np.bincount(np.array(labels_of(images)), minlength=classes)
        assert counts.tolist() == [len(images) // classes] * classes
    # Natural images: the values use the whole range, and neighbours are alike, which a wrong layout would break.
    pixels = test.pixels(slice(0, 500)).astype(float)
    assert (pixels.min(), pixels.max()) == (0, 255)
    assert np.abs(np.diff(pixels, axis=2)).mean() < 0.4 * np.abs(pixels - pixels[::-1]).mean()
