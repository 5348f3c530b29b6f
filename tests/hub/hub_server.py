"""A Hugging Face Hub on localhost with faults: the two requests that a download makes, and what can go wrong."""

import hashlib
import http.server
import json
import threading
import time
import urllib.parse

COMMIT = "c0ffee" + "0" * 34


def git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub:
    """Repositories and faults of one server; `with Hub() as hub` runs it.

    files: {"models/OWNER/NAME": {path: bytes}}; paths that end in .safetensors or .parquet are large files.
    faults: {path: [fault, ...]}, taken one a request; the last one stays if it has "always". A fault is a dict:
    status and headers (an error), cut (bytes after which the connection ends), length (added to Content-Length),
    body (other bytes), stall (seconds before the body), redirect (a URL), ignore_range, wrong_range.
    """

    def __init__(self, files=None, host="127.0.0.1"):
        self.files = files or {}
        self.listed = {}  # {repository: siblings} where the list says otherwise than the files
        self.commit = COMMIT
        self.faults = {}
        self.requests = []  # (path, headers)
        self.lock = threading.Lock()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                try:
                    hub.answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer((host, 0), Handler)
        self.server.handle_error = lambda *arguments: None  # a client that hangs up is what some tests are about
        self.server.daemon_threads = True
        self.url = f"http://{host}:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()

    def siblings(self, repository):
        entries = []
        for path, content in self.files[repository].items():
            entry = {"rfilename": path, "size": len(content), "blobId": git_sha1(content)}
            if path.endswith((".safetensors", ".parquet")):
                entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
            entries.append(entry)
        return entries

    def asked(self, part):
        return [request for request in self.requests if part in request[0]]

    def take_fault(self, path):
        with self.lock:
            faults = self.faults.get(path, [])
            if not faults:
                return {}
            return faults[0] if faults[0].get("always") else faults.pop(0)

    def answer(self, handler):
        path = urllib.parse.unquote(handler.path)
        with self.lock:
            self.requests.append((path, dict(handler.headers)))
        for repository, files in self.files.items():
            name = repository.removeprefix("models/")
            if path.startswith(f"/api/{repository}/revision/"):
                fault = self.take_fault("list")
                body = json.dumps({"sha": self.commit, "siblings": self.listed.get(repository) or self.siblings(repository)})
                return self.send(handler, body.encode(), fault)
            if path.startswith(f"/{name}/resolve/{self.commit}/"):
                file = path.split(self.commit + "/", 1)[1]
                if file in files:
                    return self.send(handler, files[file], self.take_fault(file))
                return self.fail(handler, 404, {"X-Error-Code": "EntryNotFound"})
        if path.startswith("/cdn/"):
            return self.send(handler, self.files["cdn"][path.removeprefix("/cdn/")], self.take_fault(path))
        return self.fail(handler, 401, {"X-Error-Code": "RepoNotFound"})

    @staticmethod
    def fail(handler, status, headers):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def send(self, handler, body, fault):
        if "status" in fault:
            return self.fail(handler, fault["status"], fault.get("headers", {}))
        if "redirect" in fault:
            return self.fail(handler, 302, {"Location": fault["redirect"]})
        whole = len(body)
        start = 0
        asked = handler.headers.get("Range")
        if asked and "ignore_range" not in fault:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= whole:
                return self.fail(handler, 416, {"Content-Range": f"bytes */{whole}"})
        body = fault.get("body", body)[start:]
        handler.send_response(206 if start else 200)
        if start:
            shown = start + (7 if "wrong_range" in fault else 0)
            handler.send_header("Content-Range", f"bytes {shown}-{whole - 1}/{whole}")
        handler.send_header("Content-Length", str(len(body) + fault.get("length", 0)))
        handler.end_headers()
        time.sleep(fault.get("stall", 0))
        if "cut" in fault:
            handler.wfile.write(body[: fault["cut"]])
            handler.wfile.flush()
            handler.close_connection = True
            handler.connection.close()
            return None
        handler.wfile.write(body)
        if fault.get("length"):
            handler.close_connection = True
        return None
