# SPDX-License-Identifier: BSD-2-Clause
"""One request to etcd, from the host that this runs on.

    post.py URL BODY            prints the answer
    post.py --watch URL BODY    prints each line of the answer, with the time (ns of CLOCK_MONOTONIC) in front of it
"""

import sys
import time
import urllib.request

watch = sys.argv[1] == "--watch"
url, body = sys.argv[-2:]
request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
with urllib.request.urlopen(request, timeout=None if watch else 5) as answer:
    if watch:
        for line in answer:
            print(time.monotonic_ns(), line.decode().strip(), flush=True)
    else:
        sys.stdout.write(answer.read().decode())
