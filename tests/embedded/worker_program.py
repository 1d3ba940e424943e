"""A worker in a process of its own: `python -c PROGRAM url stop_timeout` says what it holds."""

PROGRAM = """
import asyncio, sys, omnirelay

async def main():
    async with omnirelay.connect(sys.argv[1]) as relay:
        worker = omnirelay.Worker(relay, concurrency=1, stop_timeout=float(sys.argv[2]))

        @worker.handles("quick")
        async def quick(lease):
            print("holding", flush=True)
            await worker._stopping.wait()

        @worker.handles("slow")
        async def slow(lease):
            print("holding", flush=True)
            await asyncio.Event().wait()

        await worker.run(handle_signals=True)
    print("ended", flush=True)

asyncio.run(main())
"""
