#!/usr/bin/env python3
"""moto's S3 server, one request at a time: its conditional writes look and write in two steps, so that two of them
could both go through. A part of an upload that is gone gets 404, as S3 gives it; moto ends in an error of its own.

    moto_store.py [CERTIFICATE KEY]     prints the port that it listens on; ends with its standard input

POST /race/KEY: from now on the next two answers to GETs of this key are held until both are there, so that two who ask have
both seen the same.
"""

import ssl
import sys
import threading
import urllib.parse

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class OneAtATime:
    def __init__(self):
        self.app = DomainDispatcherApplication(create_backend_app)
        self.lock = threading.Lock()
        self.raced = None
        self.left = 0
        self.both = threading.Barrier(2)

    def __call__(self, environ, start_response):
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] == "POST" and path.startswith("/race/"):
            with self.lock:
                self.raced, self.left = path[len("/race"):], 2
            start_response("200 OK", [("Content-Length", "0")])
            return [b""]
        with self.lock:
            held = environ["REQUEST_METHOD"] == "GET" and path == self.raced and self.left > 0
            if held:
                self.left -= 1
            body = self.answer(environ, start_response)
        if held:
            self.both.wait()
        return body

    def answer(self, environ, start_response):
        try:
            return list(self.app(environ, start_response))
        except KeyError:
            if "uploadId" not in urllib.parse.parse_qs(environ["QUERY_STRING"]):
                raise
            body = b"<Error><Code>NoSuchUpload</Code><Message>There is no such upload.</Message></Error>"
            start_response("404 Not Found", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [body]


class Quiet(WSGIRequestHandler):
    def log(self, *_):
        pass


def main():
    context = None
    if len(sys.argv) > 1:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1], sys.argv[2])
    server = make_server("127.0.0.1", 0, OneAtATime(), threaded=True, request_handler=Quiet, ssl_context=context)
    print(server.port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


main()
