"""Flower's settings: what it shows of the workers. It holds no state of amux and may be down at any time."""

db = ""
persistent = False
max_tasks = 2_000
tasks_columns = "name,uuid,state,args,received,started,runtime,worker"
logging = "warning"
