#!/usr/bin/env python3
"""`quarry push`, `pull`, `info` and `verify` against moto's S3 server, which checks every signature.

    objects_cli_test.py BUILD QUARRY

Runs in an environment with moto: that of QUARRY_MOTO_PYTHON, this one, or BUILD/python/moto, which it makes with
packages of PyPI. Exits with 77, and a sentence, where there is none.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request
import venv

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = ["moto[server]>=5.2.5"]  # those before 5.2.5 refuse right signatures of lists


def has_moto(python):
    try:
        return subprocess.run([python, "-c", "import boto3, flask, moto.moto_server.werkzeug_app; assert tuple(map(int, moto.__version__.split('.')[:3])) >= (5, 2, 5)"], capture_output=True).returncode == 0
    except OSError:
        return False


def find_python(build):
    own = build / "python/moto/bin/python"
    for python in (os.environ.get("QUARRY_MOTO_PYTHON"), sys.executable, own):
        if python and has_moto(python):
            return python
    try:
        venv.create(own.parents[1], with_pip=True, clear=True, symlinks=True)
        subprocess.run([own, "-m", "pip", "install", "-q", "--no-compile", *PACKAGES], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"objects_cli_test: skipped: no moto, and it cannot be installed: {error}")
        sys.exit(77)
    return own


class Store:
    """The server, with a bucket, and a user who may use it, after which nobody else is served."""

    def __init__(self, *certificate):
        self.process = subprocess.Popen([sys.executable, HERE / "moto_store.py", *certificate], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.endpoint = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        self.certificate = certificate[0] if certificate else None
        import boto3

        def client(service):
            return boto3.client(service, endpoint_url=self.endpoint, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x", verify=self.certificate)

        client("s3").create_bucket(Bucket="bucket")
        iam = client("iam")
        iam.create_user(UserName="user")
        policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
        iam.put_user_policy(UserName="user", PolicyName="all", PolicyDocument=json.dumps(policy))
        self.key = iam.create_access_key(UserName="user")["AccessKey"]
        self.post("/moto-api/reset-auth", b"0")

    def post(self, path, body=b""):
        import ssl

        context = ssl.create_default_context(cafile=self.certificate) if self.certificate else None
        urllib.request.urlopen(urllib.request.Request(self.endpoint + path, data=body, method="POST", headers={"Content-Type": "text/plain"}), context=context).read()

    def environment(self, **others):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return {**kept, "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": self.key["AccessKeyId"],
                "AWS_SECRET_ACCESS_KEY": self.key["SecretAccessKey"], **others}

    def s3(self):
        import boto3

        return boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1", verify=self.certificate,
                            aws_access_key_id=self.key["AccessKeyId"], aws_secret_access_key=self.key["SecretAccessKey"])

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class ObjectsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="quarry-objects-"))
        cls.store = Store()
        cls.run_quarry("generate graph --nodes 20k --degree 8 --dim 256 --classes 4")
        cls.run_quarry("import db graph")

    @classmethod
    def tearDownClass(cls):
        cls.store.close()
        shutil.rmtree(cls.folder)

    @classmethod
    def start(cls, arguments, environment=None):
        # A blank within an argument is written as ~.
        return subprocess.Popen([QUARRY, *(argument.replace("~", " ") for argument in arguments.split())], cwd=cls.folder, env=environment or cls.store.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @classmethod
    def run_quarry(cls, arguments, exit_code=0, environment=None):
        process = cls.start(arguments, environment)
        out, err = process.communicate()
        assert process.returncode == exit_code, f"quarry {arguments}: {process.returncode}\n{out}{err}"
        return out if exit_code == 0 else err

    def test_a_database_goes_to_the_store_and_comes_back(self):
        place = "s3://bucket/there/and back/db".replace(" ", "+")
        pushed = json.loads(self.run_quarry(f"push db {place} --json"))
        self.assertEqual(pushed["retries"], 0)
        self.assertIn("commit", self.run_quarry(f"info {place}"))
        info = json.loads(self.run_quarry(f"info {place} --json"))
        self.assertEqual(info["bytes"], pushed["bytes"])
        self.assertIn("sound", self.run_quarry(f"verify {place}"))
        self.run_quarry(f"pull {place} back")
        self.assertIn("sound", self.run_quarry("verify back"))
        here, there = (json.loads(self.run_quarry(f"info {db} --json")) for db in ("db", "back"))
        for key in ("database_id", "nodes", "edges", "timestamp", "tables", "topologies"):
            self.assertEqual(here[key], there[key])
        self.assertFalse((self.folder / "db.pushing").exists())
        # What changed is sent, and nothing else.
        self.run_quarry("put back --ids graph/valid_idx.npy --split test")
        again = json.loads(self.run_quarry(f"push back {place} --json"))
        self.assertLess(again["bytes_moved"], pushed["bytes_moved"] / 10)
        self.assertIn("commit", self.run_quarry(f"push db {place}", exit_code=1))
        self.run_quarry(f"push db {place} --replace")
        # A wrong bit in the store.
        s3 = self.store.s3()
        key = next(file["object"] for file in info["files"] if file["name"].startswith("features/"))
        path = place.removeprefix("s3://bucket/") + "/" + key
        body = bytearray(s3.get_object(Bucket="bucket", Key=path)["Body"].read())
        body[len(body) // 2] ^= 1
        s3.put_object(Bucket="bucket", Key=path, Body=bytes(body))
        self.assertIn("block", self.run_quarry(f"verify {place}", exit_code=3))
        self.assertIn("block", self.run_quarry(f"pull {place} wrong", exit_code=3))
        self.assertFalse((self.folder / "wrong").exists())

    def test_who_may_not_is_told(self):
        wrong = self.store.environment(AWS_SECRET_ACCESS_KEY="wrong")
        self.assertIn("403", self.run_quarry("push db s3://bucket/mine", exit_code=1, environment=wrong))
        nobody = self.store.environment(HOME=str(self.folder))
        del nobody["AWS_ACCESS_KEY_ID"], nobody["AWS_SECRET_ACCESS_KEY"]
        self.assertIn("AWS_ACCESS_KEY_ID", self.run_quarry("info s3://bucket/mine", exit_code=1, environment=nobody))
        self.assertIn("NoSuchBucket", self.run_quarry("push db s3://other-bucket/mine", exit_code=1))
        self.assertIn("no database was pushed there", self.run_quarry("info s3://bucket/nothing", exit_code=1))
        self.assertIn("no prefix", self.run_quarry("push db s3://bucket", exit_code=2))
        for verb in ("verify s3://bucket/mine --repair", "info s3://bucket/mine --entity x"):
            self.assertIn("quarry pull s3://bucket/mine DB", self.run_quarry(verb, exit_code=2))
        self.assertIn("no database was pushed there", self.run_quarry("train s3://bucket/mine --epochs 1", exit_code=1))

    def train(self, database, arguments, environment=None, **more):
        """The losses of a training, to the last digit that is printed, and its lines."""
        fanout = "" if "--fanout" in arguments else "--fanout 4,4"
        out = self.run_quarry(f"train {database} --json --ordered --threads 2 --torch-threads 1 --hidden 16 --dropout 0 {fanout} {arguments}", environment=environment, **more)
        lines = [json.loads(line) for line in out.splitlines()]
        return [line["loss"] for line in lines if "loss" in line], lines

    def test_trains_where_it_is_published(self):
        shutil.copytree(self.folder / "db", self.folder / "packed")
        self.run_quarry("layout build packed --fanout 4,4 --batch-size 200 --cache 10% --epochs-planned 2")
        self.run_quarry("partition build packed --parts 4 --method random")
        self.run_quarry("push packed s3://bucket/packed")
        options = "--layout default --batch-size 200 --epochs 3"
        expected, _ = self.train("packed", options)
        self.assertEqual(len(expected), 3)
        views = pathlib.Path(tempfile.mkdtemp(prefix="quarry-views-"))
        at_home = self.store.environment(TMPDIR=str(views))
        (views / "quarry-view-killed").mkdir()  # of a process that is no more
        (views / "quarry-view-killed/LOCK").write_text("1")
        for cache in ("", "--cache-dir cache --cache-size 1GiB", "--cache-dir cache --cache-size 1GiB"):
            losses, lines = self.train("s3://bucket/packed", f"{options} --memory 512MiB {cache}", environment=at_home)
            self.assertEqual(losses, expected)
            self.assertEqual(list(views.iterdir()), [])  # nothing stays but the cache
        self.assertTrue((self.folder / "cache/blocks").stat().st_size > 8 << 20)
        self.assertEqual(self.train("s3://bucket/packed", "--road planned --batch-size 200 --epochs 3")[0], expected)
        self.assertEqual(self.train("s3://bucket/packed", "--batch-size 200 --epochs 3")[0], expected)  # the only road that there is
        by_parts = "--road partitioned --batch-size 200 --epochs 2 --memory 512MiB"
        self.assertEqual(self.train("s3://bucket/packed", by_parts)[0], self.train("packed", by_parts)[0])
        # What it does not do, and what to do instead.
        for arguments, words, code in (("--road live", "80 thousand", 1), ("--road fresh", "layout build", 1), ("--layout default --run x", "pull --thin", 1), ("--layout default --patience 2", "--patience", 2),
                                       ("--layout default --workers 2", "quarry pull", 2), ("--layout other", "other", 1)):
            self.assertIn(words, self.run_quarry(f"train s3://bucket/packed --fanout 4,4 --batch-size 200 --epochs 1 {arguments}", exit_code=code))
        self.assertIn("--cache-size", self.run_quarry("train s3://bucket/packed --cache-dir x", exit_code=2))
        self.assertIn("leave it out", self.run_quarry("train packed --cache-dir x --cache-size 1GiB", exit_code=2))
        # A thin database keeps runs, and rows that change.
        self.run_quarry("pull --thin s3://bucket/packed thin")
        used = sum(file.stat().st_blocks for file in (self.folder / "thin").rglob("*")) * 512
        self.assertLess(used, sum(file.stat().st_size for file in (self.folder / "thin").rglob("*")) / 4)
        self.assertEqual(self.train("thin", f"{options} --run kept")[0], expected)
        self.assertIn("kept", self.run_quarry("info thin"))
        self.assertIn("sound", self.run_quarry("verify thin"))
        self.run_quarry("checkpoint thin whole")
        nowhere = self.store.environment(AWS_ENDPOINT_URL="http://127.0.0.1:1")
        self.assertEqual(self.train("whole", f"{options} --run kept --overwrite", environment=nowhere)[0], expected)
        self.assertEqual(json.loads(self.run_quarry("sql s3://bucket/packed SELECT~count(*)~AS~n~FROM~nodes --json"))[0]["n"], 20000)

    def test_several_trainers_have_layouts_of_their_own(self):
        shutil.copytree(self.folder / "db", self.folder / "ranked")
        everyone = "--fanout 100,100"  # all neighbors: a batch of two trainers draws what one twice as large does
        self.run_quarry(f"layout build ranked --ranks 2 {everyone} --batch-size 150 --cache 5%")
        listed = json.loads(self.run_quarry("layout list ranked --json"))
        self.assertEqual([(layout["name"], layout["rank"], layout["ranks"]) for layout in listed], [("default-0of2", 0, 2), ("default-1of2", 1, 2)])
        self.assertIn("excludes", self.run_quarry("layout build ranked --ranks 2 --resume", exit_code=2).lower().replace("excluded", "excludes"))
        self.run_quarry("push ranked s3://bucket/ranked")
        self.run_quarry(f"layout build ranked one {everyone} --batch-size 300 --cache 5%")
        expected, _ = self.train("ranked", f"--layout one {everyone} --batch-size 300 --epochs 2")
        trainers = []
        for rank in range(2):
            environment = self.store.environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR=str(self.folder / "meet"), QUARRY_CACHE_DIR=str(self.folder / f"cache-{rank}"), QUARRY_CACHE_SIZE="1GiB")
            trainers.append(self.start(f"train s3://bucket/ranked --json --ordered --threads 2 --torch-threads 1 --hidden 16 --dropout 0 {everyone} --batch-size 150 --epochs 2 --layout default --memory 512MiB", environment))
        outcomes = [(*trainer.communicate(), trainer.returncode) for trainer in trainers]
        self.assertEqual([code for _, _, code in outcomes], [0, 0], outcomes)
        losses = [json.loads(line)["loss"] for line in outcomes[0][0].splitlines() if "loss" in json.loads(line)]
        self.assertEqual(len(losses), len(expected))
        for loss, one in zip(losses, expected):
            self.assertAlmostEqual(loss, one, delta=2e-4 * one)
        self.assertIn("one of 2 trainers", self.run_quarry(f"train ranked {everyone} --batch-size 150 --epochs 1 --layout default-0of2", exit_code=2))
        alone = self.store.environment(RANK="2", WORLD_SIZE="3", MASTER_ADDR=str(self.folder / "nobody"))
        self.assertIn("--ranks 3", self.run_quarry(f"train s3://bucket/ranked {everyone} --epochs 1", exit_code=1, environment=alone))

    def test_certificates_are_verified(self):
        certificate, key = self.folder / "certificate.pem", self.folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        store = Store(str(certificate), str(key))
        try:
            self.assertIn("certificate", self.run_quarry("push db s3://bucket/db", exit_code=1, environment=store.environment()))
            trusted = store.environment(AWS_CA_BUNDLE=str(certificate))
            self.run_quarry("push db s3://bucket/db", environment=trusted)
            self.assertIn("sound", self.run_quarry("verify s3://bucket/db", environment=trusted))
        finally:
            store.close()

    def test_of_two_publishers_one_wins(self):
        shutil.copytree(self.folder / "db", self.folder / "db2")
        for race in range(20):
            place = f"s3://bucket/race-{race // 2}/db"  # the first there, and on top of one
            self.store.post(f"/race/bucket/race-{race // 2}/db/manifest")
            pushes = [self.start(f"push {db} {place}") for db in ("db", "db2")]
            outcomes = [(*push.communicate(), push.returncode) for push in pushes]
            codes = sorted(code for _, _, code in outcomes)
            self.assertEqual(codes, [0, 1], f"race {race}: {outcomes}")
            loser = next(err for _, err, code in outcomes if code == 1)
            self.assertIn("another push was published meanwhile", loser)
            self.assertIn("sound", self.run_quarry(f"verify {place}"))


if __name__ == "__main__":
    BUILD, QUARRY = pathlib.Path(sys.argv[1]), sys.argv[2]
    if "OBJECTS_CLI_TEST" not in os.environ:
        python = find_python(BUILD)
        os.execve(python, [str(python), __file__, *sys.argv[1:]], {**os.environ, "OBJECTS_CLI_TEST": "1"})
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
