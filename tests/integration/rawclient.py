# SPDX-License-Identifier: BSD-2-Clause
"""The daemon's wire (common/wire.h) spoken by hand: for tests that say what no library would."""

import array
import hashlib
import json
import mmap
import os
import socket
import struct
import time

MAGIC, CONTROL_MAGIC = 0x4E524154, 0x43524154
REASONS = {1: "version", 2: "no_pool", 3: "no_key", 4: "unknown_key", 5: "bad_mac", 6: "time", 7: "role", 8: "clients",
           9: "shutdown", 10: "malformed", 11: "internal", 12: "busy", 13: "replay", 14: "address", 15: "transport"}
READONLY = 1
PING, PAGE, ADD, NUMBER, CAS, FAA, REGION = 1, 2, 3, 4, 5, 6, 7

# XXH3 64 of the names used in tests; there is no xxhash in Python's library.
POOLS = {"main": 0x49DE89CB7AF55EE5, "a": 0xE6C632B61E964E1F, "b": 0x575A0B1C44D8843F, "nothing": 0x92A0687FBE045FEE}


def connect(path, timeout=20):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(timeout)
    end = time.monotonic() + timeout
    while True:
        try:
            sock.connect(path)
            return sock
        except BlockingIOError:  # the backlog is full
            assert time.monotonic() < end, "nobody accepts"
            time.sleep(0.01)


def request(pool, flags=0, versions=(1, 1), key_id=b"", secret=None, time_ms=None, magic=MAGIC, nonce=None):
    time_ms = int(time.time() * 1000) if time_ms is None else time_ms
    nonce = int.from_bytes(os.urandom(8), "little") if nonce is None else nonce
    head = struct.pack("<IBBHQ8sQQ", magic, *versions, flags, pool, key_id, time_ms, nonce)
    mac = hashlib.blake2b(head, key=secret, digest_size=16).digest() if secret else bytes(16)
    return head + mac


class Refused(Exception):
    def __init__(self, packet):
        _, self.low, self.high, reason, self.detail, self.retry_ms = struct.unpack_from("<IBBHQI", packet)
        self.reason = REASONS[reason]
        super().__init__(self.reason)


class Client:
    """A connection that has passed its handshake; raises Refused."""

    def __init__(self, path, pool, secret=None, **options):
        self.sock = connect(path)
        packet = request(pool, secret=secret, **options)
        self.sock.send(packet)
        reply, ancillary, _, _ = self.sock.recvmsg(4096, socket.CMSG_SPACE(16))
        if len(reply) == 32:
            self.sock.close()
            raise Refused(reply)
        assert len(reply) == 196, len(reply)
        if secret:
            expected = hashlib.blake2b(packet + reply[:180], key=secret, digest_size=16).digest()
            assert reply[180:] == expected, "the daemon's MAC"
        fds = array.array("i", ancillary[0][2])
        assert len(fds) == 1
        self.fd = fds[0]
        self.role = reply[6]
        self.incarnation, self.boot_id, self.client_id, self.slot = struct.unpack_from("<QQIH", reply, 8)
        self.bytes = struct.unpack_from("<Q", reply, 144)[0]
        self.nonce = struct.unpack_from("<Q", reply, 152)[0]
        self.tag = 0

    def map(self, write=True):
        return mmap.mmap(self.fd, self.bytes, mmap.MAP_SHARED, mmap.PROT_READ | (mmap.PROT_WRITE if write else 0))

    def message(self, kind, body=b""):
        self.tag += 1
        return struct.pack("<B3xI", kind, self.tag) + body.ljust(32, b"\0")

    def rpc(self, kind, body=b""):
        """(status, number, value)"""
        self.sock.send(self.message(kind, body))
        reply = self.sock.recv(4096)
        assert len(reply) == 32, len(reply)
        got, tag, status, number, value = struct.unpack_from("<B3xIiIq", reply)
        assert (got, tag) == (kind, self.tag)
        return status, number, value

    def close(self):
        self.sock.close()
        os.close(self.fd)


def ended(sock):
    """Waits until the other side has ended the connection."""
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


class Control:
    def __init__(self, path):
        self.sock = connect(path)

    def ask_text(self, text):
        self.sock.send(struct.pack("<IB3x", CONTROL_MAGIC, 1) + text)
        answer = b""
        while True:
            packet = self.sock.recv(65536)
            assert packet, "the daemon has closed the connection"
            assert struct.unpack_from("<I", packet)[0] == CONTROL_MAGIC
            answer += packet[8:]
            if packet[4] & 1:
                return json.loads(answer)

    def ask(self, what):
        return self.ask_text(json.dumps({"get": what}).encode())

    def kill(self, **which):
        return self.ask_text(json.dumps({"kill": which}).encode())

    def close(self):
        self.sock.close()
