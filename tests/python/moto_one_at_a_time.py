"""moto's server, at the port of the first argument, that answers one request at a time.

Its own threads compare If-Match and put the object in two steps, with nothing between them that
keeps another's put out: of two puts with one ETag both are taken, which no S3 does.
"""

import sys
import threading

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple

app = DomainDispatcherApplication(create_backend_app)
one_at_a_time = threading.Lock()


def answer(environ, start_response):
    with one_at_a_time:
        return app(environ, start_response)


run_simple("127.0.0.1", int(sys.argv[1]), answer, threaded=True, request_handler=MotoRequestHandler)
