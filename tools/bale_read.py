#!/usr/bin/env python3
"""Lists and restores Bale snapshots, written from docs/FORMAT.md alone and sharing no code with Bale.

    bale_read.py REPO --password-file F | --key-file F  list
    bale_read.py REPO --password-file F | --key-file F  restore SNAPSHOT TARGET

The password is the first line of its file; a key file may hold a recovery key. SNAPSHOT is an id, the beginning of one, or "latest". Needs: cryptography, blake3, zstandard, argon2-cffi, pyarrow.
Restores files, directories, links, fifos and (as root) devices, with modes, times, owners and extended attributes.
Inode flags and project ids are left out. Exit: 0 good, 3 some entries incomplete, 1 nothing works.
"""

import argparse
import base64
import heapq
import io
import json
import os
import re
import struct
import sys
import time
from collections import OrderedDict, namedtuple

import argon2.low_level
import pyarrow.parquet
import zstandard
from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CHUNK_MAX = 16777216
OBJECT_MAX = 268435456
RECORD_MAX = 17301504
OBJECT_FILE_MAX = 276824064
STRETCH_MAX = 17179869184
TABLE_MAX = 3211264
KINDS = {"data": 1, "segment": 2, "pieces": 3, "xattrs": 4}
FEATURES = {"stretches"}
HEX8 = re.compile(r"^[0-9a-f]{8}$")
HEX32 = re.compile(r"^[0-9a-f]{32}$")
HEX64 = re.compile(r"^[0-9a-f]{64}$")
CACHE_BYTES_MAX = 64 << 20


class Damaged(Exception):
    """Bytes are not what a writer wrote."""


class Newer(Exception):
    """Written by a later version."""


def require(condition, what):
    if not condition:
        raise Damaged(what)


def read(path, bytes_max):
    with open(path, "rb") as file:
        content = file.read(bytes_max + 1)
    require(len(content) <= bytes_max, f"{path}: longer than {bytes_max}")
    return content


def derive(context, material):
    return blake3(material, derive_key_context=context).digest()


def keyed(key, data):
    return blake3(data, key=key).digest()


def unbase64(text):
    return base64.b64decode(text, validate=True)


def open_aead(key, nonce, sealed, aad, what):
    try:
        return AESGCM(key).decrypt(nonce, sealed, aad)
    except InvalidTag:
        raise Damaged(f"{what}: seal broken") from None


def unpad(opened, length, what):
    require(len(opened) >= length and not any(opened[length:]), f"{what}: padding")
    return opened[:length]


def decompress(codec, payload, plain_length, what):
    if codec == 1:
        try:
            context = zstandard.ZstdDecompressor(max_window_size=CHUNK_MAX)
            payload = context.decompress(payload, max_output_size=plain_length)
        except zstandard.ZstdError as error:
            raise Damaged(f"{what}: {error}") from None
    require(len(payload) == plain_length, f"{what}: {len(payload)} bytes instead of {plain_length}")
    return payload


# Section 3: keys


def read_secrets(arguments):
    """Kinds of slots that may open, and the bytes for each."""
    content = read(arguments.password_file or arguments.key_file, 4096)
    if arguments.password_file:
        return {"password": content.split(b"\n")[0].removesuffix(b"\r")}
    try:
        return {"keyfile": content, "recovery": recovery_bytes(content.decode("ascii"))}
    except (Damaged, UnicodeDecodeError):
        return {"keyfile": content}


def recovery_bytes(text):
    letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    typed = re.sub(r"[\s-]", "", text).upper().replace("O", "0").replace("I", "1").replace("L", "1")
    require(len(typed) == 56 and all(c in letters for c in typed), "recovery key: not 56 letters")
    number = 0
    for letter in typed:
        number = number << 5 | letters.index(letter)
    both = number.to_bytes(35, "big")
    require(blake3(both[:32]).digest()[:3] == both[32:], "recovery key: a letter is wrong")
    return both[:32]


def open_slot(slot, secrets, repository):
    """The root key, or None if the slot is another secret's."""
    if slot["slot"] > 1:
        raise Newer(f"key slot version {slot['slot']}")
    if slot["kind"] not in secrets:
        return None
    secret = secrets[slot["kind"]]
    if slot["kind"] == "password":
        kdf = slot["kdf"]["argon2id"]
        m_kib, passes, lanes = kdf["m_kib"], kdf["t"], kdf["p"]
        small = m_kib <= 2097152 and passes <= 16 and lanes <= 16 and m_kib * passes <= 8388608
        require(small, "key slot: asks for too much work")
        salt = unbase64(kdf["salt"])
        kek = argon2.low_level.hash_secret_raw(
            secret, salt, passes, m_kib, lanes, 32, argon2.low_level.Type.ID, version=0x13
        )
        kdf_json = {"argon2id": {"m_kib": m_kib, "t": passes, "p": lanes, "salt": kdf["salt"]}}
    else:
        kdf = slot["kdf"]["blake3"]
        kek = derive("bale 1 key file", unbase64(kdf["salt"]) + secret)
        kdf_json = {"blake3": {"salt": kdf["salt"]}}
    if derive("bale 1 key commitment", kek) != unbase64(slot["commitment"]):
        return None
    aad = repository + json.dumps(kdf_json, separators=(",", ":")).encode()
    return open_aead(derive("bale 1 key wrap", kek), bytes(12), unbase64(slot["wrapped"]), aad, "key slot")


Place = namedtuple("Place", "pack offset sealed plain slot kind codec")
# Where a pack is: an object, and the part of it that is the pack.
PackFile = namedtuple("PackFile", "path start length")


class Repository:
    """A directory that holds a repository, opened for reading."""

    def __init__(self, path, secrets):
        self.path = path
        root = self.open_configs(secrets)
        self.object_key = derive("bale 1 object", root)
        self.pack_key = derive("bale 1 pack", root)
        self.id_keys = {number: derive(f"bale 1 chunk id {name}", root) for name, number in KINDS.items()}
        self.content_key = derive("bale 1 content hash", root)
        self.places = {}
        self.in_stretches = {}
        self.seals = {}
        self.cache = OrderedDict()
        self.cache_bytes = 0
        self.damage = 0

    # Section 2: config and its copy

    def open_configs(self, secrets):
        """The root key by the first of the two that is sound; where both are, they must be equal."""
        found, troubles, root, sound = {}, {}, None, None
        for name in ("config", "config.copy"):
            try:
                found[name] = self.read_config(name)
                if root is None and list(found.values()).count(found[name]) == 1:
                    root, sound = self.open_config(*found[name], secrets), found[name]
            except (OSError, ValueError, LookupError, TypeError, Damaged, Newer) as error:
                troubles[name] = error
        if root is None:
            told = "; ".join(f"{name}: {error}" for name, error in troubles.items())
            raise SystemExit(f"bale_read: nothing opens: {told}")
        for name, (line, mac) in found.items():
            if (line, mac) != sound:
                is_ours = keyed(derive("bale 1 config", root), line).hex() == mac
                require(not is_ours, "config and config.copy differ, and both were written with a key")
                troubles.setdefault(name, "damaged, or of another repository")
        for name, error in troubles.items():
            print(f"bale_read: {name}: {error}: the other one is used", file=sys.stderr)
        return root

    def open_config(self, line, mac, secrets):
        config = json.loads(line)
        if config["format"] > 1:
            raise Newer(f"format {config['format']}")
        self.id = bytes.fromhex(config["repository"])
        require(len(self.id) == 16, "repository id")
        root = self.find_root(secrets)
        require(keyed(derive("bale 1 config", root), line).hex() == mac, "second line")
        self.features = set(config.get("features_read", []))
        if self.features - FEATURES:
            raise SystemExit(f"bale_read: newer: features {sorted(self.features - FEATURES)}")
        return root

    def read_config(self, name):
        lines = read(os.path.join(self.path, name), 65536)
        require(b"\n" in lines, "not two lines")
        line, mac = lines.split(b"\n", 1)
        return line, mac.decode("ascii").rstrip("\n")

    def find_root(self, secrets):
        for name in self.names("keys"):
            try:
                slot = json.loads(read(os.path.join(self.path, "keys", name), 16384))
                root = open_slot(slot, secrets, self.id)
            except (ValueError, LookupError, TypeError, Damaged) as error:
                print(f"bale_read: keys/{name}: damaged: {error}", file=sys.stderr)
                continue
            if root is not None:
                return root
        raise Damaged("wrong key, or its slot is damaged")

    def names(self, directory, pattern=HEX64):
        path = os.path.join(self.path, directory)
        return sorted(n for n in os.listdir(path) if pattern.match(n)) if os.path.isdir(path) else []

    # Section 4: sealed objects

    def open_object(self, directory, name, object_type):
        what = f"{directory}/{name}"
        content = read(os.path.join(self.path, directory, name), OBJECT_FILE_MAX)
        require(blake3(content).hexdigest() == name, f"{what}: name is not the hash of its bytes")
        return self.open_sealed(content, object_type, what)

    def open_sealed(self, content, object_type, what):
        require(len(content) >= 64 and content[:8] == b"BALEOBJ1", f"{what}: wrong magic")
        version, found_type, zero = struct.unpack_from("<HB5s", content, 8)
        if version > 1:
            raise Newer(f"{what}: version {version}")
        require(found_type == object_type and not any(zero), f"{what}: header")
        key = derive("bale 1 object seal", self.object_key + content[16:48])
        opened = open_aead(key, bytes(12), content[48:], content[:48] + self.id, what)
        require(len(opened) >= 16, f"{what}: too short")
        plain, payload, codec, zero = struct.unpack_from("<IIB7s", opened)
        require(codec <= 1 and payload <= plain <= OBJECT_MAX and not any(zero), f"{what}: lengths")
        return decompress(codec, unpad(opened[16:], payload, what), plain, what)

    def open_objects(self, directory, object_type):
        """All of a directory; damaged ones are named and left out."""
        for name in self.names(directory):
            try:
                yield name, self.open_object(directory, name, object_type)
            except (Damaged, OSError) as error:
                self.report(error)

    def report(self, error):
        self.damage += 1
        print(f"bale_read: {error}", file=sys.stderr)

    # Sections 5 and 6: index, packs, chunks

    def load_index(self):
        for name, plain in self.open_objects("index", 1):
            packs, chunks = struct.unpack_from("<II", plain)
            good = packs <= 65536 and chunks <= 1048576 and len(plain) == 8 + 40 * packs + 60 * chunks
            if not good:
                self.report(f"index/{name}: counts")
                continue
            ids = [plain[8 + 40 * n :][:32].hex() for n in range(packs)]
            for at in range(8 + 40 * packs, len(plain), 60):
                pack, *fields = struct.unpack_from("<IQIIIBB", plain, at + 32)
                if pack < packs:
                    place = Place(ids[pack], *fields)
                    self.places.setdefault(plain[at : at + 32], []).append(place)

    # Section 11: stretches

    def load_stretches(self):
        """Where packs in stretches are: by the records, and by the tables of those that have none."""
        if "stretches" not in self.features:
            return
        recorded = set()
        for name, plain in self.open_objects("stretched", 7):
            try:
                require(len(plain) >= 64, f"stretched/{name}: too short")
                run, number, zero, length = struct.unpack_from("<16sIIQ", plain)
                require(zero == 0 and 4112 <= length <= STRETCH_MAX, f"stretched/{name}: header")
                stretch = f"{run.hex()}/{number:08x}"
                self.take_table(stretch, plain[64:], length - 4112, f"stretched/{name}")
                recorded.add(stretch)
            except Damaged as error:
                self.report(error)
        for run in self.names("stretches", HEX32):
            for number in self.names(os.path.join("stretches", run), HEX8):
                if f"{run}/{number}" not in recorded:
                    try:
                        self.read_table(f"{run}/{number}")
                    except (Damaged, OSError) as error:
                        self.report(error)

    def read_table(self, stretch):
        what = f"stretches/{stretch}"
        with open(os.path.join(self.path, "stretches", stretch), "rb") as file:
            length = file.seek(0, os.SEEK_END)
            require(4112 <= length <= STRETCH_MAX, f"{what}: length")
            file.seek(length - 16)
            start, magic = struct.unpack("<Q8s", file.read(16))
            right = magic == b"BALESTRE" and length - 16 - TABLE_MAX <= start <= length - 4112
            require(right, f"{what}: end")
            file.seek(start)
            sealed = file.read(length - 16 - start)
        self.take_table(stretch, self.open_sealed(sealed, 6, what), start, what)

    def take_table(self, stretch, plain, end_max, what):
        require(len(plain) >= 8, f"{what}: table: too short")
        packs, zero = struct.unpack_from("<II", plain)
        good = packs <= 65536 and zero == 0 and len(plain) == 8 + 48 * packs
        require(good, f"{what}: table: counts")
        found, end = {}, 0
        for pack, offset, length in struct.iter_unpack("<32sQQ", plain[8:]):
            require(end <= offset and length > 0, f"{what}: table: order")
            end = offset + length
            found[pack.hex()] = PackFile(os.path.join("stretches", stretch), offset, length)
        require(end <= end_max and len(found) == packs, f"{what}: table: packs")
        for pack, file in found.items():
            self.in_stretches.setdefault(pack, []).append(file)

    def pack_files(self, pack):
        """Every place where a pack may be."""
        alone = PackFile(os.path.join("packs", pack[:2], pack), 0, None)
        return [*self.in_stretches.get(pack, []), alone]

    def chunk(self, kind, chunk_id):
        """The bytes of a chunk from any good copy."""
        number = KINDS[kind]
        if chunk_id in self.cache:
            self.cache.move_to_end(chunk_id)
            return self.cache[chunk_id]
        problem, found = Damaged(f"chunk {chunk_id.hex()}: in no index"), False
        copies = [(place, file) for place in self.places.get(chunk_id, []) for file in self.pack_files(place.pack)]
        for place, file in copies:
            try:
                plain = self.read_record(place, file)
                good = place.kind == number and keyed(self.id_keys[number], plain) == chunk_id
                require(good, f"chunk {chunk_id.hex()}: wrong id in pack {place.pack}")
                self.remember(chunk_id, plain)
                return plain
            except FileNotFoundError as error:
                # One that is read and damaged says more.
                problem = problem if found else Damaged(str(error))
            except (Damaged, OSError) as error:
                problem, found = Damaged(str(error)), True
        raise problem

    def remember(self, chunk_id, plain):
        self.cache[chunk_id] = plain
        self.cache_bytes += len(plain)
        while self.cache_bytes > CACHE_BYTES_MAX:
            self.cache_bytes -= len(self.cache.popitem(last=False)[1])

    def read_record(self, place, pack_file):
        what = f"pack {place.pack} at {place.offset}"
        require(1 <= place.plain <= CHUNK_MAX and 48 + place.sealed <= RECORD_MAX, f"{what}: lengths")
        with open(os.path.join(self.path, pack_file.path), "rb") as file:
            end = file.seek(0, os.SEEK_END) if pack_file.length is None else pack_file.start + pack_file.length
            if pack_file not in self.seals:
                self.seals[pack_file] = self.find_seal(file, place.pack, pack_file.start, end)
            file.seek(pack_file.start + place.offset)
            record = file.read(48 + place.sealed)
        inside = pack_file.start + place.offset + len(record) <= end
        require(inside and len(record) == 48 + place.sealed, f"{what}: ends too early")
        keys = self.seals[pack_file]
        nonce, head = record[:12], record[:48]
        opened = open_aead(keys[:32], nonce, head[12:], b"bale record head" + self.id, what)
        sealed, payload, plain, slot, kind, codec, zero = struct.unpack("<IIIIBBH", opened)
        found = (sealed, plain, slot, kind, codec, zero)
        require(found == (*place[2:], 0), f"{what}: head differs from the index")
        require(1 <= payload <= plain, f"{what}: length of the payload")
        body = open_aead(keys[32:], nonce, record[48:], b"bale pack record" + self.id + head, what)
        return decompress(codec, unpad(body, payload, what), plain, what)

    def find_seal(self, file, pack, start, end):
        """Head key and body key, by the copy of the pack's head with which a seal opens."""
        require(end - start >= 192, f"pack {pack}: too short")
        file.seek(start)
        front = file.read(96)
        file.seek(end - 96)
        footer = file.read(96)
        require(len(front) == len(footer) == 96, f"pack {pack}: ends too early")
        copies = front[:48], footer[48:]
        sound = [head for head in copies if head[:8] == b"BALEPACK" and not any(head[10:16])]
        versions = [struct.unpack_from("<H", head, 8)[0] for head in sound]
        if len(versions) == 2 and min(versions) > 1:
            raise Newer(f"pack {pack}")
        context = "bale 1 pack seal"
        found = [blake3(self.pack_key + head[16:], derive_key_context=context).digest(length=64) for head in copies]
        for keys in found:
            for head in front[48:], footer[:48]:
                try:
                    open_aead(keys[:32], head[:12], head[12:], b"bale record head" + self.id, pack)
                    return keys
                except Damaged:
                    pass
        for keys, head in zip(found, copies):
            if head in sound and head[8:10] == b"\1\0":
                return keys
        raise Damaged(f"pack {pack}: neither copy of its head is right")

    # Section 8: snapshots and catalogs

    def snapshots(self):
        """(id, snapshot), oldest first."""
        found = [(name, json.loads(plain)) for name, plain in self.open_objects("snapshots", 2)]
        for name in (name for name, snapshot in found if snapshot["version"] > 2):
            self.report(f"snapshots/{name} is newer")
        known = [item for item in found if item[1]["version"] in (1, 2)]
        return sorted(known, key=lambda item: item[1]["time"])

    def catalog(self, snapshot):
        """Rows in key order; of rows with one key the newest layer's, unless it says removed."""
        newest_first = list(reversed(snapshot["layers"]))
        layers = [self.layer_rows(layer, age) for age, layer in enumerate(newest_first)]
        last = None
        for key, _, row in heapq.merge(*layers, key=lambda item: item[:2]):
            if key != last:
                last = key
                if not row["flags"] & 1 << 5:
                    yield row

    def layer_rows(self, layer, age):
        for segment in layer["segments"]:
            try:
                file = self.chunk("segment", bytes.fromhex(segment["id"]))
            except Damaged as error:
                self.report(f"catalog incomplete: {error}")
                continue
            start, end = json_key(segment.get("from")), json_key(segment.get("to"))
            table = pyarrow.parquet.ParquetFile(io.BytesIO(file))
            for row in (row for batch in table.iter_batches(4096) for row in batch.to_pylist()):
                key = order(row["parent"], row["name"])
                if (start is None or key >= start) and (end is None or key < end):
                    yield key, age, row

    # Section 7: content of files

    def pieces(self, list_id, size, depth=None):
        """(length, chunk or None, start of a part or None, readable) in order; lengths add up to size."""
        plain = self.chunk("pieces", list_id)
        what = f"piece list {list_id.hex()}"
        require(len(plain) >= 8 and plain[1:4] == bytes(3), what)
        found, count = plain[0], struct.unpack_from("<I", plain, 4)[0]
        require(found <= 3 and depth in (None, found) and 1 <= count <= 16384, f"{what}: header")
        at, total = 8, 0
        for _ in range(count):
            if found:
                (length,) = struct.unpack_from("<Q", plain, at)
                yield from self.pieces(plain[at + 8 : at + 40], length, found - 1)
                at += 40
            else:
                tag, length = struct.unpack_from("<BQ", plain, at)
                require(tag <= 3 and length > 0, f"{what}: tag {tag}, length {length}")
                start = struct.unpack_from("<I", plain, at + 41)[0] if tag == 3 else None
                require(tag not in (0, 3) or (start or 0) + length <= 1 << 24, f"{what}: beyond any chunk")
                yield length, plain[at + 9 : at + 41] if tag in (0, 3) else None, start, tag != 2
                at += {0: 41, 3: 45}.get(tag, 9)
            total += length
        require(total == size and at == len(plain), f"{what}: lengths do not add up")


def order(parent, name):
    return parent.replace(b"/", b"\0"), name


def json_key(pair):
    return order(unbase64(pair[0]), unbase64(pair[1])) if pair else None


def xattr_set(repository, column):
    if not column:
        return
    require(column[0] in (1, 2), "set of extended attributes: form")
    plain = column[1:] if column[0] == 1 else repository.chunk("xattrs", column[1:])
    require(len(plain) <= 1 << 20, "set of extended attributes: too long")
    at, last, found = 0, b"", []
    while at < len(plain):
        require(at + 6 <= len(plain), "set of extended attributes: cut")
        name_length, value_length = struct.unpack_from("<HI", plain, at)
        at += 6
        end = at + name_length + value_length
        require(0 < name_length <= 255 and end <= len(plain), "set of extended attributes: lengths")
        name = plain[at : at + name_length]
        require(last < name and b"\0" not in name, "set of extended attributes: names")
        found.append((name, plain[at + name_length : end]))
        at, last = end, name
    yield from found


class Restore:
    """Writes the rows of one catalog below a directory."""

    def __init__(self, repository, target):
        self.repository = repository
        self.target = os.fsencode(target)
        self.links = {}
        self.images = {}
        self.directories = []
        self.problems = 0

    def run(self, rows):
        os.makedirs(self.target, exist_ok=True)
        for row in rows:
            if row["kind"] == 8:
                self.attempt(self.write_extent, row, self.image_path(row))
            else:
                self.attempt(self.place, row, self.path(row))
        # Last, since extents come after the row of their image.
        for row, path in self.images.values():
            self.attempt(self.finish, row, path)
        # Last, and the deepest first: writing into a directory changes its times.
        for row, path in sorted(self.directories, key=lambda item: item[1], reverse=True):
            self.attempt(self.finish, row, path)

    def attempt(self, action, row, path):
        try:
            action(row, path)
        except (Damaged, OSError) as error:
            self.problem(path, error)

    def problem(self, path, text):
        self.problems += 1
        print(f"bale_read: {os.fsdecode(path)}: {text}", file=sys.stderr)

    def path(self, row):
        components = [c for c in (row["parent"] + b"/" + row["name"]).split(b"/") if c]
        require(not {b".", b".."} & set(components), "catalog: a name is . or ..")
        return os.path.join(self.target, *components)

    def image_path(self, row):
        return os.path.join(self.target, row["parent"])

    def write_extent(self, row, path):
        """A stretch of an image, whose row came before: what no extent covers is a hole."""
        require(row["parent"] in self.images, "an extent without its image")
        image, name, size = self.images[row["parent"]][0], row["name"], row["size"]
        require(re.fullmatch(rb"[0-9a-f]{16}", name), "name of an extent")
        start = int(name, 16)
        require(row["layout"] == 1 and 0 < size and start + size <= image["size"], "an extent outside its image")
        require(start % (1 << 20) + size <= 1 << 20, "an extent across blocks")
        if row["flags"] & 1 << 4:
            self.problem(path, f"bytes from {start}: some could not be read by the backup")
        content = self.repository.chunk("data", row["chunk"])[row["offset"] :][:size]
        require(len(content) == size, "chunk is shorter than the extent")
        with open(path, "r+b") as file:
            # Zeros in it are holes of the image as well as those between extents.
            for at in range(0, size, 4096):
                block = content[at : at + 4096]
                if any(block):
                    require(os.pwrite(file.fileno(), block, start + at) == len(block), "short write")

    def place(self, row, path):
        if row["flags"] & (1 << 2 | 1 << 4):
            self.problem(path, "could not be read completely by the backup")
        if path != self.target:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            require(not os.path.islink(os.path.dirname(path)), "parent is a symlink")
        kind = row["kind"]
        if kind == 2:
            os.makedirs(path, mode=0o700, exist_ok=True)
            self.directories.append((row, path))
            return
        # Rows that differ in one of these are of a number that was used twice.
        link = tuple(row[column] for column in ("filesystem", "inode", "kind", "generation", "size", "content_hash"))
        if row["nlink"] > 1 and link in self.links:
            os.link(self.links[link], path, follow_symlinks=False)
            return
        if kind == 1:
            self.write_file(row, path)
        elif kind == 3:
            os.symlink(row["target"], path)
        elif kind == 6:
            os.mkfifo(path)
        elif kind in (4, 5):
            node = (0o060000 if kind == 4 else 0o020000) | 0o600
            os.mknod(path, node, os.makedev(row["rdev"] >> 32, row["rdev"] & 0xFFFFFFFF))
        else:  # A socket means nothing without its process.
            return
        if row["nlink"] > 1:
            self.links[link] = path
        if kind == 1 and row["layout"] == 3:
            self.images[b"/".join(part for part in (row["parent"], row["name"]) if part)] = row, path
            return
        self.finish(row, path)

    def write_file(self, row, path):
        size, layout, content = row["size"], row["layout"], b""
        require(layout <= 3, f"layout {layout}")
        if layout == 1:
            content = self.repository.chunk("data", row["chunk"])[row["offset"] :][:size]
            require(len(content) == size, "chunk is shorter than the file")
            content_hash = keyed(self.repository.content_key, content)[:16]
            require(row["content_hash"] in (b"", content_hash), "content hash differs")
        with open(path, "xb") as file:
            file.write(content)
            if layout == 2:
                self.write_pieces(row, path, file)
            file.truncate(size)

    def write_pieces(self, row, path, file):
        offset = 0
        for length, chunk_id, start, readable in self.repository.pieces(row["chunk"], row["size"]):
            if chunk_id is not None:
                content = self.repository.chunk("data", chunk_id)
                content = content if start is None else content[start : start + length]
                require(len(content) == length, "chunk is not as long as its piece")
                require(os.pwrite(file.fileno(), content, offset) == length, "short write")
            elif not readable:
                self.problem(path, f"bytes {offset} to {offset + length} could not be read by the backup")
            offset += length

    def finish(self, row, path):
        """Metadata: owners before modes, which they clear; times last."""
        try:
            if os.geteuid() == 0:
                os.chown(path, row["uid"] & 0xFFFFFFFF, row["gid"] & 0xFFFFFFFF, follow_symlinks=False)
            for name, value in xattr_set(self.repository, row["xattrs"]):
                os.setxattr(path, name, value, follow_symlinks=False)
        except (Damaged, OSError) as error:
            self.problem(path, f"owner or extended attributes: {error}")
        if row["kind"] != 3:
            os.chmod(path, row["mode"])
        mtime = row["mtime_s"] * 1_000_000_000 + row["mtime_ns"]
        atime = mtime
        if row.get("atime_ns", -1) >= 0:
            atime = row["atime_s"] * 1_000_000_000 + row["atime_ns"]
        os.utime(path, ns=(atime, mtime), follow_symlinks=False)


def list_snapshots(repository):
    for name, snapshot in repository.snapshots():
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(snapshot["time"][0]))
        paths = " ".join(os.fsdecode(unbase64(path)) for path in snapshot["paths"])
        totals = snapshot.get("totals", {})
        print(name, when, snapshot["host"], f"{totals.get('files', 0)} files", f"{totals.get('bytes', 0)} bytes", paths)


def find_snapshot(repository, wanted):
    found = repository.snapshots()
    matching = found[-1:] if wanted == "latest" else [s for s in found if s[0].startswith(wanted)]
    if len(matching) != 1:
        raise SystemExit(f"bale_read: {len(matching)} snapshots match {wanted}")
    return matching[0][1]


def is_wanted(row, snapshot, path):
    """Who wants all of a snapshot wants images, and not the files in them as well."""
    place = row["parent"] + b"/" + row["name"] if row["parent"] else row["name"]
    if path is not None:
        wanted = os.fsencode(path).strip(b"/")
        return place == wanted or place.startswith(wanted + b"/")
    views = [view for image in snapshot.get("images", []) for view in image.get("views", [])]
    is_image = row["kind"] == 8 or row["layout"] == 3
    return is_image or place.split(b"/")[0] not in {unbase64(view["path"]).lstrip(b"/") for view in views}


def main():
    parser = argparse.ArgumentParser(description="Read a Bale repository without Bale.")
    parser.add_argument("repository")
    secret = parser.add_mutually_exclusive_group(required=True)
    secret.add_argument("--password-file")
    secret.add_argument("--key-file")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    restore = commands.add_parser("restore")
    restore.add_argument("snapshot")
    restore.add_argument("target")
    restore.add_argument("path", nargs="?", help="this path and what is below; needed for the files in an image")
    arguments = parser.parse_args()
    try:
        repository = Repository(arguments.repository, read_secrets(arguments))
        if arguments.command == "list":
            list_snapshots(repository)
            return 3 if repository.damage else 0
        snapshot = find_snapshot(repository, arguments.snapshot)
        repository.load_stretches()
        repository.load_index()
        run = Restore(repository, arguments.target)
        rows = repository.catalog(snapshot)
        run.run(row for row in rows if is_wanted(row, snapshot, arguments.path))
        return 3 if run.problems or repository.damage else 0
    except (Damaged, Newer, OSError) as error:
        print(f"bale_read: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
