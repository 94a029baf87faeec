"""What every engine must do with entities and their stages.

Besides `store` and `given` the tests take a third fixture, `entities`: a `GivenEntities`.
"""
