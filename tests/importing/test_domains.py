"""Pictures in folders by domain, as Digits-Five, Office, PACS and DomainNet come."""

import numpy as np
from PIL import Image

import cfljax
from cfljax import data
from cfljax.commands import samples
from tests.importing.helpers import imported, main, pictures, refused


def office(folder, size=(6, 5)):
    """Three domains of the same two classes: colours of one size, grey of another, and one folder
    deeper."""
    pictures(folder / "amazon" / "images", size=size)
    pictures(folder / "dslr", n=4, size=(9, 7), mode="L")
    pictures(folder / "webcam", n=5, size=size)
    (folder / "readme.txt").write_text("what else lies there")
    return folder


def test_domains_are_the_owners_of_their_pictures(home, capsys):
    imported(office(home / "office"), "--by-domain", "--shape", "4x4", "--test-fraction", "0.25")
    assert "3 domains" in (said := capsys.readouterr().out) and 'partition = "domains"' in said
    source = data.load("office")
    assert source.x_train.shape[1:] == (4, 4, 3) and source.classes == 2
    assert np.bincount(source.user_train).tolist() == [9, 6, 8] and np.bincount(
        source.user_test
    ).tolist() == [3, 2, 2]
    whole = np.concatenate([source.x_train, source.x_test])
    grey = np.concatenate([source.user_train, source.user_test]) == 1
    same = (whole[..., 0] == whole[..., 1]).all((1, 2))
    assert same[grey].all() and not same[~grey].any()


def test_a_picture_has_the_class_and_the_domain_of_its_folders(home):
    colours = {("art", "cat"): 10, ("art", "dog"): 60, ("photo", "cat"): 110, ("photo", "dog"): 160}
    for side, more in (("train", 0), ("test", 5)):
        for (domain, kind), value in colours.items():
            (home / "p" / domain / side / kind).mkdir(parents=True)
            Image.new("L", (3, 3), value + more).save(home / "p" / domain / side / kind / "1.png")
    imported(home / "p", "--by-domain")
    source = data.load("p")
    for side, more in (("train", 0), ("test", 5)):
        x, y, user = (getattr(source, f"{what}_{side}") for what in ("x", "y", "user"))
        found = {
            (int(u), int(k)): int(v) - more for u, k, v in zip(user, y, x[:, 0, 0, 0], strict=True)
        }
        assert found == {(0, 0): 10, (0, 1): 60, (1, 0): 110, (1, 1): 160}


def test_a_picture_of_samples_names_the_domains(home, monkeypatch):
    imported(office(home / "office"), "--by-domain", "--shape", "4x4")
    said = []
    monkeypatch.setattr(
        samples,
        "_find_domain",
        lambda *args, real=samples._find_domain: said.append(real(*args)) or said[-1],
    )
    out = home / "s.png"
    assert (
        main(
            [
                "describe",
                "office",
                "--set",
                "data.partition=domains",
                "--set",
                "data.clients=6",
                "--draw",
                str(out),
            ]
        )
        == 0
    )
    assert said == ["amazon", "dslr", "webcam"] and out.exists()
    assert (
        main(
            [
                "describe",
                "office",
                "--set",
                "data.partition=rotated",
                "--set",
                "data.clients=4",
                "--draw",
                str(out),
            ]
        )
        == 0
    )
    assert said[3:] == [None] * 4


def test_a_run_on_domains(home):
    imported(office(home / "office"), "--by-domain", "--shape", "4x4")
    result = cfljax.run(
        "oracle", {"name": "office", "partition": "domains", "clients": 6}, "mclr", rounds=1
    )
    assert result.labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_what_is_not_in_domains_is_said_in_a_line(home, capsys):
    pictures(home / "one" / "a")
    assert "has 1 folders; with --by-domain" in refused(capsys, home / "one", "--by-domain")
    (home / "two" / "photos" / "cat").mkdir(parents=True)
    assert "has 1 folders; with --by-domain" in refused(capsys, home / "two", "--by-domain")
    pictures(home / "none" / "a", kinds=["x", "y"])
    pictures(home / "none" / "b", kinds=["z", "w"])
    assert "no class in common" in refused(capsys, home / "none", "--by-domain")
    pictures(home / "half" / "a" / "train")
    pictures(home / "half" / "a" / "test")
    pictures(home / "half" / "b")
    assert "a has a folder of test images and b has none" in refused(
        capsys, home / "half", "--by-domain"
    )
    said = refused(capsys, office(home / "office"), "--by-domain")
    assert "--shape 32x32" in said and "amazon" in said or "dslr" in said
    assert "leave one of the two out" in refused(
        capsys, home / "office", "--by-domain", "--by-user"
    )


def test_a_folder_around_the_domains_is_passed(home):
    office(home / "PACS" / "kfold")
    imported(home / "PACS", "--by-domain", "--shape", "4x4")
    assert len(np.unique(data.load("PACS").user_train)) == 3


def test_folders_that_look_like_domains_are_told(home, capsys):
    pictures(home / "p" / "art")
    pictures(home / "p" / "photo")
    imported(home / "p")
    assert (
        "art and photo count as classes" in (said := capsys.readouterr().err)
        and "--by-domain" in said
    )
    imported(home / "p", "--by-domain", "--replace")
    pictures(home / "q")
    imported(home / "q")
    assert "count as classes" not in capsys.readouterr().err


def test_a_class_that_a_domain_lacks_is_said(home, capsys):
    pictures(home / "p" / "a")
    pictures(home / "p" / "b", kinds=["cat"])
    imported(home / "p", "--by-domain")
    assert "b has no images of dog" in capsys.readouterr().err


def test_a_picture_that_claims_to_be_huge_is_not_decoded(home, capsys, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    pictures(home / "p" / "a")
    pictures(home / "p" / "b")
    Image.new("L", (40, 40)).save(home / "p" / "b" / "cat" / "bomb.png")
    said = refused(capsys, home / "p", "--by-domain", "--shape", "4x4")
    assert "bomb.png" in said and "1600 pixels" in said


def test_other_kinds_have_no_domains(home, capsys):
    np.savez(home / "x.npz", x=np.zeros((9, 2)), y=np.arange(9) % 2)
    assert "has no effect on an import of numpy" in refused(capsys, home / "x.npz", "--by-domain")
